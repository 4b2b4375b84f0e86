"""Recording a grid of runs: the missing ones, and a real recording with a toy workload."""

import itertools
import sys
from collections import Counter
from multiprocessing import forkserver
from pathlib import Path

import pytest

from autotune.core.errors import InputError
from autotune.core.trial import Failure, Status
from autotune.space import configurations, spaces
from autotune.storage.store import Options
from autotune.system.nvml import Gpu
from autotune.system.telemetry import Hardware
from autotune.trials.setup import TrainingSetup
from autotune.workloads.base import Workload
from lab.replay import recording, table
from lab.replay.table import Header, Table

SPACE = """
workload: toy_workload:fit
baseline: {micro_batch_size: 4, num_workers: 0, learning_rate: 1e-3, step_s: 0.001, val_loss: 2.5}
knobs:
  micro_batch_size: {choice: [4, 64]}
  num_workers:      {choice: [0, 1]}
  learning_rate:    {scale: sqrt, multiplier: {choice: [1.0, 2.0]}}
budget: {samples_per_trial: 400}
"""


@pytest.fixture(scope="module", autouse=True)
def _without_torch():
    """Keeps the trials from looking for their fake GPU: another file's fork server may have torch loaded."""
    forkserver._forkserver._stop()


@pytest.fixture
def small():
    return spaces.complete(spaces.parse(SPACE, "test"), "test")


def test_a_grid_is_every_configuration_the_baseline_first(grid):
    configs = recording.grid(grid)
    assert configs[0] == grid.baseline_config
    assert len(configs) == len(configurations.allowed(grid)) == 16


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("{choice: [0, 1]}", "{randint: [0, 1]}", "every knob must be a choice: num_workers"),
        (", multiplier: {choice: [1.0, 2.0]}", "", "every knob must be a choice: learning_rate"),
        ("[0, 1]", str(list(range(10_001))), "more than 20,000 configurations"),
    ],
)
def test_an_infinite_grid_is_refused(old, new, part):
    space = spaces.complete(spaces.parse(SPACE.replace(old, new), "test"), "test")
    with pytest.raises(InputError, match=part):
        recording.grid(space)


def kinds(planned):
    return Counter((p.config["micro_batch_size"], p.config["num_workers"], p.timed) for p in planned)


def test_settings_of_speed_are_timed_and_settings_of_quality_have_seeds(small, recorded):
    known = Table(Header(small, {}))
    timed = list(recording.missing(known, seeds=2, timings=2, part="timed"))
    more_often = {(4, 0, True): 8, (4, 1, True): 2, (64, 0, True): 2, (64, 1, True): 2}
    assert kinds(timed) == more_often
    assert [p.seed for p in timed if p.config == small.baseline_config] == list(range(8))
    untimed = list(recording.missing(known, seeds=3, timings=2, part="untimed"))
    assert kinds(untimed) == {(4, 0, False): 6, (64, 0, False): 6}
    assert Counter(p.seed for p in untimed) == {0: 4, 1: 4, 2: 4}
    assert list(recording.missing(recorded, seeds=3, timings=1)) == []


def test_an_out_of_memory_run_is_not_repeated(recorded):
    for part in ("timed", "untimed"):
        planned = list(recording.missing(recorded, seeds=9, timings=9, part=part))
        assert planned
        assert all(p.config["micro_batch_size"] < 32 for p in planned)


@pytest.fixture
def workload():
    sys.path.insert(0, str(Path(__file__).parents[2] / "autotune"))
    yield Workload("toy_workload:fit")
    sys.path.remove(str(Path(__file__).parents[2] / "autotune"))


def training(space, workload):
    """A training on a machine whose GPU has 8 GiB."""
    gpu = Gpu("Test GPU", 2**33, (9, 0), "GPU-0")
    return TrainingSetup(space, workload, Hardware(1, 16 * 2**30, (gpu,), None), Options())


def test_an_interrupted_recording_resumes_and_completes(small, workload, tmp_path):
    file = tmp_path / "toy.jsonl"
    table.create(file, Header(small, {}))

    def record(most=None):
        known, said = Table.read(file), []
        plan = itertools.islice(recording.missing(known, seeds=1, timings=1), most)
        recording.record(file, known, training(small, workload), plan, said.append)
        return said

    assert len(record(most=2)) == 2
    first = file.read_text()
    file.write_text(first + first.splitlines()[-1][:50])  # a kill cut the third run's line short
    said = record()
    assert len(said) == 6, "two that do not fit, the baseline three times, and the other learning rate"
    assert sum("failed (oom)" in line for line in said) == 2
    assert file.read_text().startswith(first)
    assert record() == []
    assert [f.name for f in tmp_path.iterdir()] == ["toy.jsonl"]

    known = Table.read(file)
    baseline, *again = known.timed(small.baseline_config)
    assert (baseline.seed, *(run.seed for run in again)) == (0, 1, 2, 3)
    assert [point.samples for point in baseline.evaluations][:2] == [200, 400]
    assert baseline.evaluations[1][2:] == (0.2, 2.5, None, False)
    assert set(baseline.step_samples) == {4}
    assert len(baseline.step_s) >= 99
    assert min(baseline.step_s) >= 0.001
    assert baseline.start_s > 0
    assert baseline.memory_limit_bytes == 2**33
    (failed,) = known.timed({**small.baseline_config, "micro_batch_size": 64})
    assert (failed.outcome.status, failed.outcome.failure) == (Status.FAILED, Failure.OOM)
    doubled = {**small.baseline_config, "learning_rate": 2e-3}
    (untimed,) = known.qualities(doubled)
    assert (untimed.timed, untimed.step_s, untimed.evaluations[0][:2]) == (False, (), (200, 0.0))


def test_the_drift_is_measured_with_the_baseline(small, workload, tmp_path):
    file = tmp_path / "toy.jsonl"
    table.create(file, Header(small, {}))
    found = recording.record_drift(file, training(small, workload), 3.0)
    assert Table.read(file).drift == found
    assert len(found.speeds) >= 2
    assert sum(found.speeds) / len(found.speeds) == pytest.approx(1, abs=0.01)
    assert [f.name for f in tmp_path.iterdir()] == ["toy.jsonl"]


def test_a_baseline_that_does_not_train_shows_no_drift(workload, tmp_path):
    space = spaces.complete(spaces.parse(SPACE.replace("_size: 4", "_size: 64"), "test"), "test")
    with pytest.raises(InputError, match=r"did not train for even a second: .*does not fit"):
        recording.record_drift(tmp_path / "toy.jsonl", training(space, workload), 3.0)
