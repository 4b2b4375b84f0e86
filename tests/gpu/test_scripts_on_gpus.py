"""Scripts on a machine with a GPU, searched by the real command line: which device their figures are of."""

import json
import os
import re
import sys
from pathlib import Path
from shlex import quote

import pytest
import torch

from autotune.storage import study_file
from autotune.storage.store import StoredSession
from autotune.system import telemetry
from tests import forked
from tests.endings import ENDED
from tests.gpu.fake_nvml import FakeGpu, fake_gpus, nvml_library

__all__ = ["fake_gpus", "nvml_library"]

HERE = Path(__file__).parent
WITHOUT = "env -u FAKE_TORCH python train.py {micro_batch_size}"
TRAIN = """
import sys
import torch
from torch.utils.data import DataLoader, TensorDataset

net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
data = TensorDataset(torch.randn(256, 4), torch.randn(256, 1))
{before}
while True:
    for x, y in DataLoader(data, int(sys.argv[1])):
        optimizer.zero_grad()
        ((net(x) - y) ** 2).mean().backward()
        optimizer.step()
    print("acc 0.5", flush=True)
"""
SPACE = """
workload:
  kind: command
  run: {run}
  quality: {{acc: 'acc ([\\d.]+)'}}
  {environment}
baseline: {{micro_batch_size: 4}}
knobs: {{micro_batch_size: {{choice: [4, 16]}}}}
objective: {{quality: acc, select: same-quality, keep: 0.5}}
budget: {{trials: 2, samples_per_trial: 2000, repeats: 0}}
"""
# The driver is forked from a process that has looked for libraries already.
DRIVER = f"""
import os, pynvml
pynvml.nvmlLib = pynvml.CDLL(os.environ["LD_LIBRARY_PATH"] + "/libnvidia-ml.so.1")
{forked.COMMAND}
"""


GPU = "NVIDIA RTX 4060 Laptop"


@pytest.fixture
def search(tmp_path, fake_gpus):
    """Searches with a script that does something `before` it trains; returns how that ended."""
    fake_gpus(FakeGpu(name=GPU))

    def run(command, *options, before="", environment=""):
        (tmp_path / "train.py").write_text(TRAIN.format(before=before))
        (tmp_path / "space.yaml").write_text(SPACE.format(run=command, environment=environment))
        given = ("search", "--space", "space.yaml", "--session", "s", "--wandb", "off", *options)
        return forked.run(given, tmp_path, os.environ, script=DRIVER)

    return run


def devices(session):
    trials = study_file.load_study(StoredSession.open(session).study_file).trials
    return {trial.measurement.device for trial in trials if trial.completed}


@pytest.mark.slow
def test_a_script_that_sees_no_gpu_is_not_measured_under_its_name(search, tmp_path):
    done = search(WITHOUT)
    assert (done.returncode, devices(tmp_path / "s")) == (2, set()), done.stdout
    assert "samples/s" not in done.stdout
    (line,) = done.stderr.splitlines()
    assert re.search(r"(is a build without CUDA|cannot use the trial's GPU): .*--gpus-per-trial 0; ", line)
    assert line.endswith("Fix that, then run: python -m autotune resume s")


@pytest.mark.slow
@pytest.mark.parametrize("names", ["the Python", "the command"])
def test_a_scripts_own_python_without_cuda_is_named_before_the_search(search, tmp_path, names):
    own = tmp_path / "env" / "bin" / "python"
    own.parent.mkdir(parents=True)
    own.write_text(f'#!/bin/sh\nexec env -u FAKE_TORCH {quote(sys.executable)} "$@"\n')
    own.chmod(0o755)
    command, environment = ("python", "python: env/bin/python") if names == "the Python" else (own, "")
    done = search(f"{command} train.py {{micro_batch_size}}", environment=environment)
    assert (done.returncode, done.stdout, (tmp_path / "s").exists()) == (2, "", False), done.stdout
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"autotune: {own}: no GPU can be used: "), line
    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU build"
    assert f"torch {torch.__version__}, {build}" in line, line
    assert line.endswith("; or search on the CPU: --gpus-per-trial 0")


@pytest.mark.long
def test_a_script_that_is_given_no_gpu_is_measured_under_the_cpus_name(search, tmp_path):
    done = search(WITHOUT, "--gpus-per-trial", 0)
    assert done.returncode in ENDED, done.stderr
    assert devices(tmp_path / "s") == {telemetry.cpu_model()}


@pytest.mark.long
def test_a_script_that_uses_its_gpu_is_measured_under_its_name(search, tmp_path):
    environment = {"PYTHONPATH": str(HERE / "fake_cuda"), "FAKE_CUDA": str(tmp_path / "gpu.json")}
    (tmp_path / "gpu.json").write_text("{}")
    before = "torch.zeros(1, device='cuda'); torch.cuda.fake.allocate(2**20)"
    done = search(WITHOUT, before=before, environment=f"environment: {json.dumps(environment)}")
    assert done.returncode in ENDED, done.stderr
    assert devices(tmp_path / "s") == {GPU}
