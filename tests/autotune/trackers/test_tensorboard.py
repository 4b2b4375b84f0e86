"""TensorBoard's files, read back by TensorBoard itself."""

import math
import subprocess
import sys
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from autotune.core.measurement import Measurement, Metric, Throughput
from autotune.core.trial import Outcome, Status
from autotune.storage.layout import SessionDir
from autotune.trackers.tensorboard import TensorBoard
from autotune.trackers.tracker import Context
from autotune.trials.progress import Phase
from autotune.trials.report import TrialReport

ROOT = Path(__file__).parents[3]
ENDED = Outcome(Status.COMPLETED)


def report(samples, seconds, more_records=(), **more):
    """Returns a report with two steps and an evaluation."""
    records = [{"samples": n, "train_loss": 1000.0 / n, "at_s": 1.0} for n in (samples - 8, samples)]
    records += [{"samples": samples, "bleu_4": samples / 1000, "at_s": 1.0}]
    shown = Measurement(throughput=Throughput(5.0 + samples, None, 9, 9.0), samples=samples)
    return TrialReport(0, Phase.TRAINING, seconds, shown, (*more_records, *records), **more)


def read(directory):
    events = EventAccumulator(str(directory), size_guidance={"scalars": 0})
    return events.Reload()


def points(events, name):
    return [(e.step, pytest.approx(e.value)) for e in events.Scalars(name)]


def opened(place):
    return TensorBoard(Context(SessionDir(place), "s", Metric("bleu_4"), wandb="off"))


@pytest.fixture
def board(tmp_path):
    return opened(tmp_path)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "tensorboard" / "0000"


def test_a_trial_is_a_run_over_samples_by_its_own_clock(board, folder):
    board.begin("0000", {})
    for second in range(1, 4):
        telemetry = {"cpu_percent": 50.0 * second}
        board.log("0000", report(100 * second, 10.0 * second, telemetry=telemetry))
    board.end("0000", ENDED, None)
    events = read(folder)
    assert points(events, "train/loss") == [(100, 10.0), (200, 5.0), (300, 10 / 3)]
    assert points(events, "val/bleu_4") == [(100, 0.1), (200, 0.2), (300, 0.3)]
    assert points(events, "perf/throughput") == [(100, 105.0), (200, 205.0), (300, 305.0)]
    assert points(events, "system/cpu_percent") == [(100, 50.0), (200, 100.0), (300, 150.0)]
    times = [e.wall_time for e in events.Scalars("system/cpu_percent")]
    assert [t - times[0] for t in times] == pytest.approx([0.0, 10.0, 20.0])


KILLED = """
import os, sys
from pathlib import Path
from tests.autotune.trackers.test_tensorboard import opened, report
board = opened(Path(sys.argv[1]))
board.begin("0000", {})
for second in range(1, 101):
    board.log("0000", report(100 * second, 10.0 * second))
os._exit(9)
"""


def test_a_trial_resumed_after_a_kill_is_one_curve(tmp_path, board, folder):
    assert subprocess.run([sys.executable, "-c", KILLED, tmp_path], check=False, cwd=ROOT).returncode == 9
    before = points(read(folder), "val/bleu_4")
    assert 10 < len(before) < 100, "what was written before the kill can be read, but for the last of it"
    board.begin("0000", {})
    for second in range(10, 13):  # from a checkpoint long before
        board.log("0000", report(100 * second + 50, 2000.0 + second))
    board.end("0000", ENDED, None)
    events = read(folder)
    assert points(events, "val/bleu_4") == [*before[:10], (1050, 1.05), (1150, 1.15), (1250, 1.25)]
    times = [e.wall_time for e in events.Scalars("val/bleu_4")]
    assert times[-1] - times[0] == pytest.approx(2002.0)


def test_a_trial_that_goes_back_within_one_search_is_one_curve_too(board, folder):
    board.begin("0000", {})
    for second, samples in enumerate((100, 200, 150), start=1):
        board.log("0000", report(samples, float(second)))
    board.end("0000", ENDED, None)
    assert [step for step, _ in points(read(folder), "train/loss")] == [100, 150]


def test_a_hundred_steps_a_second_are_one_point_and_an_evaluation_is_never_left_out(board, folder):
    steps = [{"samples": n, "train_loss": 1.0, "at_s": n / 1000} for n in range(8, 800, 8)]
    more = [*steps[:50], {"samples": 400, "bleu_4": 0.1, "at_s": 0.4}, *steps[50:]]
    board.begin("0000", {})
    board.log("0000", report(800, 1.0, more))
    board.end("0000", ENDED, None)
    events = read(folder)
    assert points(events, "val/bleu_4") == [(400, 0.1), (800, 0.8)]
    assert points(events, "train/loss") == [(800, 1.25)]


def test_nan_and_infinity_are_charted(board, folder):
    board.begin("0000", {})
    board.log("0000", report(100, 1.0, telemetry={"gpu_power_w": float("nan"), "cpu_percent": 1e300}))
    board.end("0000", ENDED, None)
    events = read(folder)
    assert math.isnan(events.Scalars("gpu/power_w")[0].value)
    assert math.isinf(events.Scalars("system/cpu_percent")[0].value)


WITHOUT_WANDB = """
import sys
from pathlib import Path
import autotune.engines.engine
from autotune.sessions import run
from autotune.space import spaces
from autotune.storage.store import Options, StoredSession
from autotune.trackers import ray_callback, registry
from tests.autotune.conftest import SPACE
session = StoredSession.create(Path(sys.argv[1]), spaces.parse(SPACE, "test"), Options(wandb="off"), {})
with registry.open_session(session) as trackers:
    ray_callback.callback(trackers)
    print(*trackers.names, *sys.modules)
"""


@pytest.mark.slow
def test_the_driver_of_a_search_imports_no_torch_no_tensorflow_and_no_tracker_that_is_off(tmp_path):
    command = [sys.executable, "-c", WITHOUT_WANDB, tmp_path / "s"]
    tracker, *imported = subprocess.check_output(command, cwd=ROOT, text=True).split()
    assert tracker == "tensorboard"
    assert "tensorboard.summary.writer.record_writer" in imported
    assert not {"torch", "tensorflow", "wandb", "mlflow"} & set(imported)
