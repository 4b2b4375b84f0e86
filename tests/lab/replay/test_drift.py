"""A machine whose speed drifts: the duration of work, and the drift measured from a run."""

import pytest

from lab.replay import drift
from lab.replay.drift import Drift

MOVING = Drift((0.5, 1.5, 0.0, 2.0))


def test_at_its_mean_speed_a_machine_takes_the_nominal_time():
    assert Drift((1.0, 1.0)).seconds(7.3, 0.4) == pytest.approx(7.3)


@pytest.mark.parametrize(
    ("work_s", "at_s", "seconds"),
    [
        (0.25, 0.0, 0.5),
        (0.5, 0.5, 0.5 + 0.25 / 1.5),
        (0.75, 1.75, 0.25 + 1 + 0.375 / 2),  # a second at speed 0
        (0.25, 4.0, 0.5),  # wraps around to the first interval
        (4.0, 0.0, 4.0),
        (40.5, 0.0, 41.0),
    ],
)
def test_work_takes_longer_while_the_machine_is_slow(work_s, at_s, seconds):
    assert MOVING.seconds(work_s, at_s) == pytest.approx(seconds)


def test_work_in_pieces_takes_as_long_as_in_one():
    now = 0.3
    for _ in range(1000):
        now += MOVING.seconds(0.0137, now)
    assert now - 0.3 == pytest.approx(MOVING.seconds(13.7, 0.3))


def test_the_samples_of_a_step_are_spread_over_its_time():
    steps = [(10, 0.5), (10, 0.5), (10, 1.0), (30, 1.5), (7, 0.3)]
    assert drift.of_steps(steps) == Drift((1.2, 0.6, 1.2))
    assert drift.of_steps(steps, 0.5).speeds[:4] == pytest.approx((1.1667, 1.1667, 0.5833, 0.5833))


def test_a_step_of_many_seconds_is_as_fast_in_each():
    assert drift.of_steps([(8, 4.0), (8, 2.0)]).speeds == (0.75, 0.75, 0.75, 0.75, 1.5, 1.5)


def test_the_deviation_is_relative():
    assert Drift((0.5, 1.5)).deviation == Drift((5.0, 15.0)).deviation == 0.5


@pytest.mark.parametrize(
    ("speeds", "interval_s"), [((), 1.0), ((0.0, 0.0), 1.0), ((2.0, -1.0), 1.0), ((1.0,), 0)]
)
def test_an_invalid_drift_is_refused(speeds, interval_s):
    with pytest.raises(ValueError, match="a drift is"):
        Drift(speeds, interval_s)


def test_a_run_of_less_than_a_second_shows_no_drift():
    with pytest.raises(ValueError, match="a drift is"):
        drift.of_steps([(4, 0.2), (4, 0.2)])
