"""A script with only its own arguments, and the values that replace its settings."""

import os
import subprocess
from pathlib import Path

import pytest

from autotune.core.errors import InputError
from autotune.core.shell import word
from autotune.inside.inbox import SITE
from autotune.workloads import registry
from autotune.workloads.command.ending import CommandError
from autotune.workloads.frameworks.workload import FrameworkWorkload
from tests.forked import WITHOUT_COMPILER

pytestmark = pytest.mark.usefixtures("_without_compiler")

# It prints the resulting settings of its loaders and its optimizer.
SCRIPT = """
import sys, torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

def build(settings):
    print("built with", settings)

if __name__ == "__main__":
    data = TensorDataset(torch.ones(32, 4), torch.ones(32, 1))
    model = torch.nn.Linear(4, 1)
    groups = [{"params": [model.weight]}, {"params": [model.bias], "lr": 0.02}]
    optimizer = torch.optim.SGD(groups, lr=0.01)
    print("lr", [group["lr"] for group in optimizer.param_groups])
    validation = DataLoader(data, batch_size=4, persistent_workers=True, num_workers=1, timeout=9)
    share = DataLoader(data, 4, sampler=DistributedSampler(data, 2, 0, shuffle=False))
    training = DataLoader(data, 4, True)
    for name, loader in {"validation": validation, "share": share, "training": training}.items():
        print(name, loader.batch_size, loader.num_workers, loader.persistent_workers, loader.drop_last)
        next(iter(loader))
    print("path", sys.path[1:3])
    for x, y in training:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    import time
    time.sleep(float(sys.argv[1]))
"""
SETTINGS = {"loader": {"batch_size": 16, "num_workers": 0, "drop_last": True}, "optimizer": {"lr": 0.1}}


@pytest.fixture
def made(tmp_path):
    def make(run="python script.py 0", **keys):
        (tmp_path / "script.py").write_text(SCRIPT)
        values = {"kind": "lightning", "run": run, **keys}
        return registry.load(registry.with_absolute_paths({k: v for k, v in values.items() if v}, tmp_path))

    return make


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@pytest.mark.slow
def test_settings_replace_a_scripts_own_and_an_unused_one_ends_the_trial(made, workdir, capfd):
    settings = {
        **SETTINGS,
        "trainer": {"precision": "32-true"},
        "loader": {**SETTINGS["loader"], "nmu_workers": 1},
    }
    with pytest.raises(
        CommandError, match=r"nothing took the settings loader.nmu_workers, trainer.precision"
    ):
        list(made("python script.py 30").fit(settings, workdir))
    said = capfd.readouterr().out.splitlines()
    assert "lr [0.1, 0.2]" in said  # a parameter group's own rate keeps its ratio
    # Evaluation loaders are unchanged; without workers, options that need workers are dropped.
    assert {"validation 4 0 False False", "share 4 0 False False", "training 16 0 False True"} <= {*said}


def test_the_winner_trains_with_the_script_as_it_is(made):
    """The shell that runs it has its own PYTHONPATH."""
    line, given = made().command_line(SETTINGS), os.environ | {"PYTHONPATH": str(WITHOUT_COMPILER)}
    done = subprocess.run(["sh", "-c", line], env=given, capture_output=True, text=True, check=True)
    assert "training 16 0 False True" in done.stdout
    assert f"path {[str(SITE), str(WITHOUT_COMPILER)]}" in done.stdout
    assert done.stderr == ""
    own = made(environment={"PYTHONPATH": "/own"}).command_line(SETTINGS)
    assert f" PYTHONPATH={word(str(SITE))}:/own " in own


def test_the_winners_line_says_each_setting_once(made):
    line = made().command_line(SETTINGS)
    assert (line.count("batch_size"), line.count(" AUTOTUNE_SETTINGS=")) == (1, 0)
    assert " AUTOTUNE_SETTINGS=" in made(None, build="script:build").command_line(SETTINGS)
    assert " AUTOTUNE_SETTINGS=" in made("python script.py {a}").command_line({"a": 1, **SETTINGS})


def test_a_function_uses_every_setting_and_a_script_those_of_its_objects(made):
    built = made(None, build="script:build")
    built.check({"a": 1, **SETTINGS})
    made().check(SETTINGS)
    takes = [workload.takes("a") for workload in (built, made(), made("python script.py {a}"))]
    assert takes == [True, False, True]
    with pytest.raises(InputError, match=r"baseline.a: nothing uses it"):
        made().check({"a": 1, **SETTINGS})


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"build": "script:build"}, "one of run, build, got both"),
        ({"run": None}, "one of run, build, got neither"),
        ({"run": None, "build": "script"}, "build: a function as package.module:function, got 'script'"),
        ({"buidl": "a:b"}, "buidl: no such key, did you mean build?"),
    ],
)
def test_a_mistake_is_one_line(made, keys, said):
    with pytest.raises(InputError) as error:
        made(**keys)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", ["lightning", "transformers"])
def test_a_whole_training_has_the_scripts_own_length(made, kind):
    workload = made(kind=kind)
    assert workload.ends_itself
    assert workload.for_training(SETTINGS, None).keys() == {*SETTINGS, "effective_batch_size"}


def test_work_is_counted_in_the_unit_of_the_frameworks_evaluations(made):
    made(kind="transformers").require_unit("tokens")
    made().require_unit("samples")
    with pytest.raises(InputError, match=r"unit: kind lightning counts samples, got 'tokens'"):
        made().require_unit("tokens")


def test_plain_pytorch_has_no_function_to_build(tmp_path):
    with pytest.raises(InputError, match=r"workload\.build: kind torch has none: .*run"):
        FrameworkWorkload.parse({"kind": "torch", "build": "module:function"}, tmp_path)
