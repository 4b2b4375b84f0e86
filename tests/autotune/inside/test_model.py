"""The hook changes the models of a script that has no options for that."""

import json
import os
import subprocess
import sys

import pytest

from autotune.inside.inbox import SITE
from tests import forked
from tests.autotune.inside.conftest import ARMED

SCRIPT = """
import json, torch
from torch import nn
seen = []
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.out = nn.Conv2d(3, 4, 3), nn.Linear(4, 2)
    def forward(self, x):
        hidden = self.conv(x)
        seen.append([str(hidden.dtype), x.is_contiguous(memory_format=torch.channels_last)])
        return {"logits": self.out(hidden.mean((2, 3)))}
model, loss_of = Model(), nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    logits = model(torch.randn(2, 3, 8, 8))["logits"]
    seen.append(str(logits.dtype))
    loss_of(logits, torch.tensor([0, 1])).backward()
    optimizer.step()
with torch.no_grad():
    model.eval()(torch.randn(2, 3, 8, 8))
print(json.dumps({
    "seen": seen,
    "matmul": torch.get_float32_matmul_precision(),
    "weights": model.conv.weight.is_contiguous(memory_format=torch.channels_last),
    "compiled": model._compiled_call_impl is not None,
    "loss_compiled": loss_of._compiled_call_impl is not None,
    "restored": nn.Module.__call__ is nn.Module._wrapped_call_impl,
}))
"""


@pytest.fixture
def trained(tmp_path):
    def train(**settings):
        environment = {
            **os.environ,
            "AUTOTUNE_OVERRIDES": json.dumps({"model": settings}),
            "TORCHDYNAMO_DISABLE": "1",  # what is compiled runs without a compiler
        }
        done = forked.run((), tmp_path, environment, script=ARMED + SCRIPT, warm="trainer")
        assert (done.returncode, "autotune:" in done.stderr) == (0, False), done.stderr
        return json.loads(done.stdout)

    return train


@pytest.mark.slow
def test_a_model_runs_in_bf16_and_its_loss_does_not(trained):
    found = trained(precision="bf16")
    inside = ["torch.bfloat16", False]
    assert found["seen"] == [inside, "torch.float32", inside, "torch.float32", inside]
    assert found["restored"]


def test_tf32_is_a_precision_of_matrix_products(trained):
    found = trained(precision="tf32")
    assert found["matmul"] == "high"
    assert found["seen"][0][0] == "torch.float32"


def test_images_and_weights_are_in_channels_last(trained):
    found = trained(channels_last=True)
    assert found["weights"]
    assert [one[1] for one in found["seen"] if isinstance(one, list)] == [True] * 3


def test_the_model_is_compiled_and_the_loss_is_not(trained):
    found = trained(compile="default")
    assert found["compiled"]
    assert not found["loss_compiled"]
    assert not trained(compile="off")["compiled"]


def test_the_steps_of_a_changed_model_are_reported(hear):
    changed = json.dumps({"model": {"precision": "bf16"}})
    told, usual = hear("loader", AUTOTUNE_OVERRIDES=changed), hear("loader")
    assert told.errors == usual.errors
    assert told.samples == usual.samples == told.said
    assert told.taken == ["model.precision"]


def test_items_that_every_worker_would_yield_get_no_workers(hear):
    workers = json.dumps({"loader": {"num_workers": 2}})
    told, usual = hear("lines", AUTOTUNE_OVERRIDES=workers), hear("lines")
    assert (told.said, told.samples, told.taken) == (usual.said, usual.samples, [])
    batch = json.dumps({"loader": {"num_workers": 0}})
    assert hear("lines", AUTOTUNE_OVERRIDES=batch).taken == ["loader.num_workers"]


COPIED = """
import copy, io, torch
from torch import nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    def forward(self, x):
        return self.body(x)
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
average = copy.deepcopy(model)
for weight in average.parameters():
    weight.data.zero_()
file = io.BytesIO()
torch.save(model, file)
print(average(torch.ones(2, 4)).abs().sum().item(), "saved", file.tell() > 0)
"""


@pytest.mark.slow
def test_a_changed_model_can_be_copied_and_saved_whole(tmp_path):
    (tmp_path / "train.py").write_text(COPIED)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, (SITE, forked.WITHOUT_COMPILER))),
        "AUTOTUNE_OVERRIDES": json.dumps({"model": {"precision": "bf16"}}),
    }
    done = subprocess.run(
        [sys.executable, "train.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "0.0 saved True\n", done.stderr
