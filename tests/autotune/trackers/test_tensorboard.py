"""What is written for TensorBoard is read back by TensorBoard itself."""

import logging
import math
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from ray import cloudpickle
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from autotune.core.measurement import Measurement, Throughput
from autotune.core.trial import Outcome, Status
from autotune.trackers.tensorboard import Board
from autotune.trials.progress import Phase
from autotune.trials.reported import Report

ROOT = Path(__file__).parents[3]
KEY = "made-up-key-" + "0123456789" * 3


def trial(number, **settings):
    config = {"micro_batch_size": 8, "accumulation_steps": 1, "precision": "bf16", "num_workers": 2}
    return SimpleNamespace(config={"number": number, "config": config | {"learning_rate": 1e-4} | settings})


def result(samples, seconds, **more):
    """What Ray passes on of a report with two steps and an evaluation, at its end."""
    records = [{"samples": n, "train_loss": 1000.0 / n, "at_s": 1.0} for n in (samples - 8, samples)]
    records += [{"samples": samples, "bleu_4": samples / 1000, "at_s": 1.0}]
    shown = Measurement(throughput=Throughput(5.0 + samples, None, 9, 9.0), samples=samples)
    return Report(0, Phase.TRAINING, seconds, shown, tuple(records), **more).to_dict()


def read(directory):
    events = EventAccumulator(str(directory), size_guidance={"scalars": 0})
    return events.Reload()


def points(events, name):
    return [(e.step, pytest.approx(e.value)) for e in events.Scalars(name)]


def hyperparameters(events, kind):
    """The hyperparameters or the end of a trial, as its table has them."""
    content = events.SummaryMetadata(f"_hparams_/session_{kind}_info").plugin_data.content
    return getattr(HParamsPluginData.FromString(content), f"session_{kind}_info")


@pytest.fixture
def board(tmp_path, space):
    return Board(tmp_path, space)


def test_a_trial_is_a_run_over_samples_by_its_own_clock(tmp_path, board):
    board.log_trial_start(trial(6))
    for second in range(1, 4):
        telemetry = {"cpu_percent": 50.0 * second}
        board.log_trial_result(second, trial(6), result(100 * second, 10.0 * second, telemetry=telemetry))
    board.log_trial_end(trial(6))
    events = read(tmp_path / "0006")
    assert points(events, "train/loss") == [(100, 10.0), (200, 5.0), (300, 10 / 3)]
    assert points(events, "val/bleu_4") == [(100, 0.1), (200, 0.2), (300, 0.3)]
    assert points(events, "perf/throughput") == [(100, 105.0), (200, 205.0), (300, 305.0)]
    assert points(events, "system/cpu_percent") == [(100, 50.0), (200, 100.0), (300, 150.0)]
    times = [e.wall_time for e in events.Scalars("system/cpu_percent")]
    assert [t - times[0] for t in times] == pytest.approx([0.0, 10.0, 20.0])


def test_the_table_of_hyperparameters_has_knobs_and_how_trials_ended(tmp_path, board, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", KEY)
    for number, status in enumerate(Status):
        board.log_trial_start(trial(number, precision=KEY, seed=7))
        board.log_trial_result(1, trial(number), result(100, 10.0, outcome=Outcome(status)))
        board.log_trial_end(trial(number), failed=status is Status.FAILED)
    events = [read(tmp_path / f"{number:04d}") for number in range(4)]
    knobs = hyperparameters(events[0], "start").hparams
    assert knobs["micro_batch_size"].number_value == 8
    assert knobs["precision"].string_value == "(hidden)"
    assert "seed" not in knobs
    success, failure = 1, 2  # of TensorBoard's Status
    assert [hyperparameters(e, "end").status for e in events[:3]] == [success, success, failure]
    assert "_hparams_/session_end_info" not in events[3].Tags()["tensors"]


KILLED = """
import os, sys
from pathlib import Path
from autotune.space import spaces
from autotune.trackers.tensorboard import Board
from tests.autotune.conftest import SPACE
from tests.autotune.trackers.test_tensorboard import result, trial
board = Board(Path(sys.argv[1]), spaces.parse(SPACE, "test"))
board.log_trial_start(trial(0))
for second in range(1, 101):
    board.log_trial_result(second, trial(0), result(100 * second, 10.0 * second))
os._exit(9)
"""


def test_a_trial_gone_on_with_after_a_kill_is_one_curve(tmp_path, board):
    assert subprocess.run([sys.executable, "-c", KILLED, tmp_path], check=False, cwd=ROOT).returncode == 9
    before = points(read(tmp_path / "0000"), "val/bleu_4")
    assert 10 < len(before) < 100, "what was written before the kill can be read, but for the last of it"
    board.log_trial_start(trial(0))
    for second in range(10, 13):  # from a checkpoint long before
        board.log_trial_result(second, trial(0), result(100 * second + 50, 2000.0 + second))
    board.log_trial_end(trial(0))
    events = read(tmp_path / "0000")
    assert points(events, "val/bleu_4") == [*before[:10], (1050, 1.05), (1150, 1.15), (1250, 1.25)]
    times = [e.wall_time for e in events.Scalars("val/bleu_4")]
    assert times[-1] - times[0] == pytest.approx(2002.0)


def test_a_trial_that_goes_back_within_one_search_is_one_curve_too(tmp_path, board):
    board.log_trial_start(trial(0))
    board.log_trial_result(1, trial(0), result(100, 1.0))
    board.log_trial_result(2, trial(0), result(200, 2.0))
    board.log_trial_start(trial(0))  # Tune has aborted, and was started again
    board.log_trial_result(3, trial(0), result(150, 3.0))
    board.on_experiment_end([])
    assert [step for step, _ in points(read(tmp_path / "0000"), "train/loss")] == [100, 150]


def test_a_hundred_steps_a_second_are_one_point_and_an_evaluation_is_never_left_out(tmp_path, board):
    report = result(800, 1.0)
    steps = [{"samples": n, "train_loss": 1.0, "at_s": n / 1000} for n in range(8, 800, 8)]
    report["records"] = [
        *steps[:50],
        {"samples": 400, "bleu_4": 0.1, "at_s": 0.4},
        *steps[50:],
        *report["records"],
    ]
    board.log_trial_start(trial(0))
    board.log_trial_result(1, trial(0), report)
    board.log_trial_end(trial(0))
    events = read(tmp_path / "0000")
    assert points(events, "val/bleu_4") == [(400, 0.1), (800, 0.8)]
    assert points(events, "train/loss") == [(800, 1.25)]


def test_numbers_that_are_none_are_charted_as_that(tmp_path, board):
    board.log_trial_start(trial(0))
    board.log_trial_result(
        1, trial(0), result(100, 1.0, telemetry={"gpu_power_w": float("nan"), "cpu_percent": 1e300})
    )
    board.log_trial_end(trial(0))
    events = read(tmp_path / "0000")
    assert math.isnan(events.Scalars("gpu/power_w")[0].value)
    assert math.isinf(events.Scalars("system/cpu_percent")[0].value)


def test_what_cannot_be_written_is_said_once_and_stops_nothing(tmp_path, space, caplog):
    (tmp_path / "tensorboard").write_text("in the way")
    board = Board(tmp_path / "tensorboard", space)
    with caplog.at_level(logging.WARNING):
        for number in (0, 1):
            board.log_trial_start(trial(number))
            board.log_trial_result(1, trial(number), result(100, 1.0))
            board.log_trial_end(trial(number))
        board.on_experiment_end([])
    (line,) = caplog.messages
    assert line.startswith("TensorBoard: ")
    assert line.endswith("; the search continues")


def test_it_survives_pickling_without_its_files(tmp_path, board):
    board.log_trial_start(trial(0))
    again = cloudpickle.loads(cloudpickle.dumps(board))
    again.log_trial_result(1, trial(0), result(100, 1.0))
    board.on_experiment_end([])
    assert "train/loss" not in read(tmp_path / "0000").Tags()["scalars"]


WITHOUT_WANDB = """
import sys
from pathlib import Path
import autotune.engines.engine, autotune.trackers.tensorboard
from autotune.sessions import run
from autotune.space import spaces
from autotune.storage.store import Options, Session
from tests.autotune.conftest import SPACE
session = Session.create(Path(sys.argv[1]), spaces.parse(SPACE, "test"), Options(wandb="off"), {})
with run._wandb(session) as tracker:
    print(tracker, *sys.modules)
"""


def test_the_driver_of_a_search_imports_no_torch_no_tensorflow_and_no_wandb_that_is_off(tmp_path):
    command = [sys.executable, "-c", WITHOUT_WANDB, tmp_path / "s"]
    tracker, *imported = subprocess.check_output(command, cwd=ROOT, text=True).split()
    assert tracker == "None"
    assert "tensorboard.summary.writer.record_writer" in imported
    assert not {"torch", "tensorflow", "wandb"} & set(imported)
