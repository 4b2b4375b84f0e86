"""The search space on the DeepSpeed page: its configs, and a script that reads them."""

import importlib.util
import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.export import patch, winner
from autotune.space import configurations, spaces
from autotune.workloads.command import calls, files
from autotune.workloads.command.workload import CommandWorkload
from autotune.workloads.in_place import Document

PAGE = Path(__file__).parents[4] / "docs" / "how-to" / "deepspeed.md"
# Reads the config as DeepSpeed does, but trains without DeepSpeed.
SCRIPT = """
import argparse, json, torch
given = argparse.ArgumentParser()
for name in ("--deepspeed_config", "--output"): given.add_argument(name)
given.add_argument("--lr", type=float); given.add_argument("--seed", type=int)
given = given.parse_args()
config = json.load(open(given.deepspeed_config))
micro, times = config["train_micro_batch_size_per_gpu"], config["gradient_accumulation_steps"]
torch.manual_seed(given.seed)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=given.lr)
for step in range(8):
    for _ in range(times):
        with torch.autocast("cpu", torch.bfloat16, enabled=config["bf16"]["enabled"]):
            loss = model(torch.ones(micro, 4)).float().pow(2).mean()
        loss.backward()
    optimizer.step(); optimizer.zero_grad()
    print(f"val_loss: {loss.item():.4f}")
"""
READ = """
import json, sys
from deepspeed.runtime.config import DeepSpeedConfig
for place in sys.argv[1:]:
    c = DeepSpeedConfig(place)
    said = [c.train_micro_batch_size_per_gpu, c.gradient_accumulation_steps, c.bfloat16_config.enabled]
    said += [c.float16_config.enabled, c.zero_config.stage, c.zero_config.offload_optimizer.device]
    print(json.dumps(said))
"""


def block(title):
    return re.search(rf'```\w+ title="{title}"\n(.*?)```', PAGE.read_text(), re.DOTALL)[1]


@pytest.fixture
def space():
    return spaces.complete(spaces.parse(block("space.yaml"), "page"), "page")


@pytest.fixture
def workload(space, tmp_path):
    """The page's workload, started by Python itself."""
    (tmp_path / "ds_config.json").write_text(block("ds_config.json"))
    (tmp_path / "train.py").write_text(SCRIPT)
    run = space.workload["run"].replace("deepspeed train.py", "python train.py")
    return CommandWorkload.parse({**space.workload, "run": run, "directory": "."}, tmp_path)


def written(workload, settings):
    values = calls.values_of(workload.spec, settings, "out")
    return files.text_of("ds", workload.spec.files["ds"], workload.directory, values)


def test_the_baseline_is_the_config_as_it_is(space, workload):
    settings = configurations.for_workload(space, space.baseline)
    workload.check(settings)
    assert written(workload, settings) == block("ds_config.json")


@pytest.mark.slow
def test_a_script_trains_with_its_written_config(space, workload, tmp_path):
    config = {"micro_batch_size": 16, "accumulation_steps": 2, "precision": "bf16", "zero_stage": 3}
    flat = workload.for_trial(space.settings(config), 256, 1, "val_loss")
    settings = configurations.for_workload(space, flat)
    (tmp_path / "work").mkdir()
    records = list(workload.fit(settings, tmp_path / "work"))
    steps = [record["samples"] for record in records if "val_loss" not in record]
    assert steps[:8] == list(range(32, 257, 32))
    assert any("val_loss" in record for record in records)
    made = json.loads((tmp_path / "work" / "ds.json").read_text())
    assert (made["bf16"], made["fp16"]) == ({"enabled": True}, {"enabled": False})
    assert made["zero_optimization"] == {"stage": 3, "offload_optimizer": {"device": "cpu"}}
    naming, base = space.naming, tmp_path / "ds_config.json"
    found = winner.Winner(settings, naming, frozenset(), {"trial": "1"}, workload)
    patched = patch.patch(Document.read(base), found).text
    assert patched == (tmp_path / "work" / "ds.json").read_text()


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="DeepSpeed is not installed")
def test_deepspeeds_own_classes_take_every_config_of_the_space(space, workload, tmp_path):
    choices = {name: knob.drawn_from.choice for name, knob in space.knobs.items() if name != "learning_rate"}
    configs = [dict(zip(choices, values, strict=True)) for values in itertools.product(*choices.values())]
    places, expected = [], []
    for i, config in enumerate(configs):
        places.append(tmp_path / f"{i}.json")
        places[-1].write_text(written(workload, configurations.for_workload(space, space.settings(config))))
        batch = [config["micro_batch_size"], config["accumulation_steps"]]
        switches = [config["precision"] == name for name in ("bf16", "fp16")]
        expected.append([*batch, *switches, config["zero_stage"], config["offload_optimizer"]])
    environment = {**os.environ, "DS_BUILD_OPS": "0"}
    command = [sys.executable, "-c", READ, *map(str, places)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert [
        json.loads(line) for line in done.stdout.splitlines() if line.endswith(('cpu"]', 'none"]'))
    ] == expected
