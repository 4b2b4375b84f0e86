"""A whole search on two unlike GPUs that trials share, over a fake driver: real command line, Ray and processes."""

import itertools
import json
import os
from pathlib import Path

import pytest

from autotune.storage import study as record
from autotune.storage.store import Session
from tests import forked
from tests.gpu.fake_nvml import FakeGpu, fake_gpus, nvml_library

__all__ = ["fake_gpus", "nvml_library"]

GIB = 2**30
GPUS = FakeGpu(name="NVIDIA A", gib=8), FakeGpu(name="NVIDIA B", gib=24, capability=(9, 0))
SPACE = """
workload: gpu_toy:fit
baseline: {micro_batch_size: 4, num_workers: 0, learning_rate: 1e-3}
knobs: {micro_batch_size: {choice: [4, 8, 16]}, num_workers: {choice: [0, 1, 2]}}
objective: {select: fastest}
budget: {trials: 6, samples_per_trial: 400, repeats: 1, finalists: 1}
"""
# The driver is forked from a process that has looked for libraries already; a machine of four CPUs has room
# for two trials on each GPU.
DRIVER = f"""
import os, pynvml
pynvml.nvmlLib = pynvml.CDLL(os.environ["LD_LIBRARY_PATH"] + "/libnvidia-ml.so.1")
os.sched_getaffinity = lambda _: set(range(4))
{forked.COMMAND}
"""


@pytest.fixture
def searched(tmp_path, fake_gpus, monkeypatch):
    fake_gpus(*GPUS)
    monkeypatch.setenv("PLACED", str(tmp_path / "placed.jsonl"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), os.environ["PYTHONPATH"]]))
    monkeypatch.delenv("OMP_NUM_THREADS")
    (tmp_path / "space.yaml").write_text(SPACE)
    arguments = (
        "search",
        "--space",
        "space.yaml",
        "--session",
        "s",
        "--wandb",
        "off",
        "--gpus-per-trial",
        0.5,
    )
    done = forked.run(arguments, tmp_path, os.environ, script=DRIVER)
    assert done.stderr == ""
    return done, Session.open(tmp_path / "s"), placements(tmp_path / "placed.jsonl")


def placements(file):
    """Where each trial ran, by its number; members of a race are left out."""
    lines = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    return {
        int(Path(line["directory"]).name): line
        for line in lines
        if Path(line["directory"]).parent.name == "trials"
    }


def test_trials_share_unlike_gpus_and_are_confirmed_alone(searched):
    done, session, placed = searched
    print(done.stdout)
    for number, line in placed.items():
        print(number, line)
    trials = record.trials(record.load_study(session.study_file))
    for t in trials:
        print(
            t.number,
            t.config,
            t.race,
            t.repeat,
            t.outcome,
            t.measurement.device,
            t.measurement.memory_limit_bytes,
        )
    print(session.provenance())
    assert 0
