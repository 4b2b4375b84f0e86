"""A whole search over a fake NVML, by the real command line and Ray: trials share two unlike GPUs.

A third one, between them, is lost.
"""

import itertools
import json
import os
from pathlib import Path

import pynvml
import pytest

from autotune.storage import study_file
from autotune.storage.store import StoredSession
from tests import forked
from tests.endings import ENDED
from tests.gpu.fake_nvml import FakeGpu, fake_gpus, nvml_library

pytestmark = pytest.mark.slow

__all__ = ["fake_gpus", "nvml_library"]

GIB = 2**30
LOST = FakeGpu(fails={"Handle": pynvml.NVML_ERROR_GPU_IS_LOST})
GPUS = FakeGpu(name="NVIDIA A", gib=8), LOST, FakeGpu(name="NVIDIA B", gib=24, capability=(9, 0))
BY_UUID = {GPUS[index].uuid(index): GPUS[index] for index in (0, 2)}
SPACE = """
workload: gpu_toy:fit
baseline: {micro_batch_size: 4, num_workers: 0, learning_rate: 1e-3}
knobs: {micro_batch_size: {choice: [4, 16]}, num_workers: {choice: [0, 1]}}
objective: {select: same-quality}
budget: {trials: 4, samples_per_trial: 800, repeats: 3, finalists: 1}
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
    """The session, the search's output, and where each of its trials ran."""
    fake_gpus(*GPUS)
    monkeypatch.setenv("PLACED", str(tmp_path / "placed.jsonl"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), os.environ["PYTHONPATH"]]))
    monkeypatch.delenv("OMP_NUM_THREADS")
    (tmp_path / "space.yaml").write_text(SPACE)
    options = ("--session", "s", "--wandb", "off", "--gpus-per-trial", 0.5)
    done = forked.run(("search", "--space", "space.yaml", *options), tmp_path, os.environ, script=DRIVER)
    print(done.stdout)
    assert done.stderr == ""
    assert done.returncode in ENDED
    return StoredSession.open(tmp_path / "s"), done.stdout, placements(tmp_path / "placed.jsonl")


def placements(file):
    """Where each trial ran, by its number; and the places of the members of races, in a list."""
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    places = [(Path(line["directory"]), line) for line in lines]
    found = {int(place.name): line for place, line in places if place.parent.name == "trials"}
    assert len(found) == sum(place.parent.name == "trials" for place, _ in places), "none was begun twice"
    return found, [line for place, line in places if place.parent.name != "trials"]


@pytest.mark.long
def test_trials_share_unlike_gpus_and_what_confirms_has_one_to_itself(searched):
    session, said, (placed, raced) = searched
    trials = {t.number: t for t in study_file.load_study(session.study_file).trials if t.number in placed}
    shared = [number for number, trial in trials.items() if not trial.runs_alone]
    assert len(shared) >= 4
    assert raced

    everywhere = [*placed.values(), *raced]
    assert {line["CUDA_DEVICE_ORDER"] for line in everywhere} == {"PCI_BUS_ID"}
    assert {line["OMP_NUM_THREADS"] for line in everywhere} == {None}, "as without the tuner"
    assert {placed[number]["workers"] for number in shared} == {0, 1}
    assert len({placed[number]["server"] for number in shared}) < len(shared), "supervisors are used again"

    for number, trial in trials.items():
        gpu = BY_UUID[placed[number]["CUDA_VISIBLE_DEVICES"]]
        assert trial.measurement.device == gpu.name
        assert trial.measurement.telemetry["gpu_power_w"] == 150.0
        # By the smallest GPU.
        assert trial.measurement.memory_limit_bytes == (8 if trial.runs_alone else 4) * GIB
    for one, other in itertools.product(raced, placed.values()):
        assert not beside(one, other), "nobody else is on its GPU"

    facts = session.provenance()
    assert (facts["device"], facts["driver"]) == ("NVIDIA A, NVIDIA B", "580.95.05")
    assert "NVIDIA A (8.0 GiB), NVIDIA B (24.0 GiB)" in said
    assert "GPU 1 is left out: GPU is lost" in said


def beside(one, other):
    """Whether two trials were on the same GPU at the same time."""
    begun_s, ended_s = zip(one["at_s"], other["at_s"], strict=True)
    return one["CUDA_VISIBLE_DEVICES"] == other["CUDA_VISIBLE_DEVICES"] and max(begun_s) <= min(ended_s)
