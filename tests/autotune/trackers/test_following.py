"""A training's run in TensorBoard, without W&B: its own tests read what the command line has written."""

import logging

import pytest

from autotune.core.measurement import Measurement, Throughput
from autotune.core.metric import Metric
from autotune.core.trial import Failure, Outcome, Status
from autotune.storage.trial_dir import TrainingDir
from autotune.trackers.following import Following, Shown
from autotune.trials.progress import Phase
from autotune.trials.reported import Report

from .test_tensorboard import hyperparameters, points, read

SHOWN = Shown("iu", {"micro_batch_size": 8, "data": None}, Metric("bleu_4"))
SUCCESS = 1  # of TensorBoard's Status


def report(samples, outcome=None):
    records = (
        {"samples": samples, "train_loss": 1.0, "at_s": 1.0},
        {"samples": samples, "bleu_4": 0.2, "at_s": 1.0},
    )
    shown = Measurement(throughput=Throughput(5.0, None, 9, 9.0), samples=samples)
    return Report(0, Phase.TRAINING, samples / 10, shown, records, outcome=outcome)


@pytest.fixture
def place(tmp_path):
    return TrainingDir(tmp_path / "winner")


def test_a_failed_attempt_is_not_the_end_of_the_run(place):
    failed = Outcome(Status.FAILED, Failure.ERROR, "CUDA error: unspecified launch failure")
    with Following(place, SHOWN, "off") as following:
        following.hear(report(100))
        following.hear(report(200, failed))
        following.hear(report(150))
        following.hear(report(300, Outcome(Status.COMPLETED)))
        following.ended(report(300, Outcome(Status.COMPLETED)))
    events = read(place.tensorboard_dir / "winner")
    assert hyperparameters(events, "end").status == SUCCESS
    assert points(events, "val/bleu_4") == [(100, 0.2), (150, 0.2), (300, 0.2)]
    assert points(events, "train/loss") == [(100, 1.0), (150, 1.0), (300, 1.0)]


def test_what_cannot_be_written_stops_no_training(place, caplog):
    place.root.mkdir()
    place.tensorboard_dir.write_text("in the way")
    with caplog.at_level(logging.WARNING), Following(place, SHOWN, "off") as following:
        following.hear(report(100))
        following.ended(report(100, Outcome(Status.COMPLETED)))
    (line,) = caplog.messages
    assert line.startswith("TensorBoard: ")
    assert line.endswith("; the training continues")
