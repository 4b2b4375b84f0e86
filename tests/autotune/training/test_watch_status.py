"""The status of a training from its records and reports."""

from dataclasses import replace

import pytest

from autotune.core.measurement import Measurement, Metric
from autotune.judging.measurement.trends import Point
from autotune.training.watch import TrainingStatus, Watch
from autotune.trials.progress import Phase
from autotune.trials.report import TrialReport

from .test_plan import PLAN
from .test_watch import LENGTH, reports

BEGUN = TrainingStatus(PLAN, epoch=1000)


def evaluated(*points):
    return BEGUN.with_records({"samples": samples, "score": value} for samples, value in points)


def test_a_report_updates_the_status():
    watch, standing = Watch(PLAN.metric, **LENGTH), BEGUN
    for report in reports(300):
        watch.hear(report)
        standing = standing.after(report, watch)
    assert (standing.phase, standing.samples) == (Phase.TRAINING, report.samples)
    assert standing.seconds == report.elapsed_s
    assert standing.recent_per_s == watch.recent_per_s == pytest.approx(100.0, rel=0.05)
    assert standing.step_shares == pytest.approx(
        {"data_s": 0.2, "forward_s": 0.8} | dict.fromkeys(("transfer_s", "backward_s", "optimizer_s"), 0.0)
    )
    assert standing.telemetry == report.telemetry
    assert [point.value for point in standing.curve] == [0.5]


@pytest.mark.parametrize(("minimize", "best"), [(False, Point(200, 0.3)), (True, Point(100, 0.1))])
def test_the_best_is_the_first_of_the_best(minimize, best):
    found = evaluated((100, 0.1), (200, 0.3), (300, 0.3), (400, 0.2))
    assert replace(found, plan=replace(PLAN, metric=Metric("score", minimize=minimize))).best == best
    assert BEGUN.best is None


def test_repeated_records_replace_earlier_ones():
    found = evaluated((100, 0.1), (200, 0.2), (300, 0.9), (200, 0.25))
    assert found.curve == (Point(100, 0.1), Point(200, 0.25))
    assert (found.samples, found.furthest) == (200, 300)


def test_marks_and_non_numbers_are_no_points():
    nan = float("nan")
    records = (
        {"attempt": 1.0, "clock_s": 2.0},
        {"samples": 8, "train_loss": nan},
        {"samples": 8, "score": 1e300},
    )
    found = BEGUN.with_records(records)
    assert (found.curve, found.loss, found.samples) == ((), None, 8)


def test_a_loss_that_was_a_number_is_not_shown_once_it_is_none():
    losses = ({"samples": 8, "train_loss": 1.5}, {"samples": 16, "train_loss": float("inf")})
    assert BEGUN.with_records(losses[:1]).loss == 1.5
    assert BEGUN.with_records(losses).loss is None


@pytest.mark.parametrize(
    ("samples", "per_s", "left_s"),
    [(4000, 50.0, 60.0), (None, 50.0, None), (4000, None, None), (500, 50.0, 0.0)],
)
def test_the_time_left_follows_from_the_steps(samples, per_s, left_s):
    plan = replace(PLAN, samples=samples)
    assert TrainingStatus(plan, samples=1000, recent_per_s=per_s, measurement=Measurement()).left_s == left_s


def test_a_report_from_behind_a_checkpoint_does_not_move_the_furthest():
    ahead = replace(BEGUN, samples=400, furthest=400)
    found = ahead.after(
        TrialReport(0, Phase.START, 1.0, Measurement(samples=320)), Watch(PLAN.metric, **LENGTH)
    )
    assert (found.samples, found.furthest) == (320, 400)
