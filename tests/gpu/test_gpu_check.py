"""The whole of `python -m lab gpu` on a fake GPU: what the fakes carry holds, and nothing else breaks off."""

import json
import os
import socket
from pathlib import Path

import pytest

from tests import forked
from tests.gpu.fake_nvml import FakeGpu, fake_gpus, nvml_library

pytestmark = pytest.mark.slow

__all__ = ["fake_gpus", "nvml_library"]

COMMAND = """
import os, sys, pynvml
pynvml.nvmlLib = pynvml.CDLL(os.environ["LD_LIBRARY_PATH"] + "/libnvidia-ml.so.1")
from pathlib import Path
from autotune.workloads import registry
from lab.gpu_check import command
from r2gen import synthetic
data = synthetic.make(Path("data").resolve(), {"train": 8, "val": 2, "test": 2}, seed=0, size=64)
settings = {**registry.load("r2gen").models["small"], "data": str(data), "num_workers": 0}
sys.exit(command.main(settings, Path("found.json")))
"""
KEY = "0123456789abcdef" * 2 + "01234567"


@pytest.fixture
def checked(tmp_path, fake_gpus, monkeypatch):
    """The exit code, what was said, and what was written."""
    fake_gpus(FakeGpu(name=f"NVIDIA {KEY}"), FakeGpu())
    whole = Path(__file__).with_name("whole_gpu")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(whole), os.environ["PYTHONPATH"]]))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("FAKE_CUDA", str(tmp_path / "gpu.json"))
    (tmp_path / "gpu.json").write_text("{}")
    done = forked.run((), tmp_path, os.environ, script=COMMAND)
    print(done.stdout)
    assert done.stderr == ""
    return done, (tmp_path / "found.json").read_text(encoding="utf-8")


@pytest.mark.long
def test_what_the_fakes_carry_holds_and_the_rest_says_why_not(checked, tmp_path):
    done, written = checked
    found = {one["name"]: one for one in json.loads(written)["points"]}
    assert done.returncode == 1, "the model cannot be trained on a fake"
    holding = {name for name, one in found.items() if one["ok"]}
    assert holding >= {
        "NVML and torch agree",
        "fp32 computes",
        "forked trials open CUDA",
        "a lost GPU is not replaced by the CPU",
        "out of memory",
        "out of memory under a cap",
        "a killed trial gives its GPU back",
        "the card by itself",
    }
    assert {name for name in found if name.startswith("fp32")} >= {"fp32", "fp32, cuda-graphs, checkpointing"}
    assert not any("broke off" in one["detail"] for one in found.values())
    assert (
        found["out of memory under a cap"]["figures"]["held_bytes"]
        <= 2**32
        < (found["out of memory"]["figures"]["held_bytes"])
    )
    assert "0 steps were measured" in found["a lost GPU is not replaced by the CPU"]["detail"]
    refused = {name for name, one in found.items() if one["ok"] is False}
    assert refused >= {
        "two trials share a GPU",
        "the speed is that of whole epochs",
        "fp32",
        "bf16, checkpointing",
    }
    assert all("trained on a fake GPU" in found[name]["detail"] for name in refused)
    note, *lines = done.stdout.splitlines()
    assert "figures of one are not compared with those of another" in note
    assert len(lines) == len(found) + 1
    assert all(text.startswith(("yes", "no ", "not asked")) for text in lines[:-1])
    assert {one["workload"] for one in json.loads(written)["trials"]} >= {"r2gen.train:fit", "command"}
    for private in (KEY, str(tmp_path), socket.gethostname(), FakeGpu().uuid(0)):
        assert private not in written
