"""Nobody opens CUDA before the script: a context takes memory, and forks of its process cannot use CUDA."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.inside.inbox import SITE

HERE = Path(__file__).parent
IMPORTS = """
import importlib, pkgutil, torch
import autotune, r2gen
for package in (autotune, r2gen):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not module.name.endswith("__main__") and ".site" not in module.name:
            importlib.import_module(module.name)
print(torch.cuda.is_initialized(), torch.cuda.fake.is_asked)
"""
# A script's steps under the hook, on the host: up to the first optimizer step, and after it.
TRAINS = f"""
import runpy, sys
sys.path.insert(0, {str(SITE)!r})
runpy.run_path({str(SITE / "sitecustomize.py")!r})
import torch
from torch.utils.data import DataLoader, TensorDataset

net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for x, y in DataLoader(TensorDataset(torch.randn(8, 4), torch.randn(8, 1)), 4):
    optimizer.zero_grad()
    ((net(x) - y) ** 2).mean().backward()
    before = torch.cuda.is_initialized(), torch.cuda.fake.is_asked
    optimizer.step()
torch.save(net.state_dict(), "net.pt")
print(*before)
"""


@pytest.fixture
def python(tmp_path):
    """Runs a script with torch on the fake GPU; returns its output."""

    def run(script, **variables):
        (tmp_path / "gpu.json").write_text("{}")
        fakes = {"PYTHONPATH": f"{HERE / 'fake_cuda'}", "FAKE_CUDA": str(tmp_path / "gpu.json")}
        command = [sys.executable, "-c", script]
        done = subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, **fakes, **variables},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    return run


@pytest.mark.long
def test_no_import_opens_cuda(python):
    assert python(IMPORTS) == ["False", "False"]


@pytest.mark.long
def test_the_hook_opens_cuda_no_sooner_than_the_script(python):
    capped = {"AUTOTUNE_SOCKET": "nobody", "AUTOTUNE_OUTPUT": "", "AUTOTUNE_MEMORY_CAP_BYTES": "1000000000"}
    assert python(TRAINS, **capped) == ["False", "False"]
