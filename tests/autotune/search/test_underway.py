"""Which trials run, since when, and which of them share what they run on."""

import pytest

from autotune.core.measurement import Measurement
from autotune.core.trial import Outcome, Repeat, Status, Trial
from autotune.search.underway import Underway

COMPLETED = Outcome(Status.COMPLETED)


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def underway(clock):
    return Underway(clock)


def test_a_trial_that_ends_has_what_it_took_and_ends_once(underway, clock):
    underway.begin(Trial(0, {}))
    clock.now = 7.0
    ended = underway.end(0, COMPLETED, Measurement())
    assert (ended.seconds, ended.outcome, ended.measurement.shared) == (7.0, COMPLETED, False)
    assert underway.end(0, COMPLETED, Measurement()) is None
    assert (len(underway), underway.get(0)) == (0, None)


def test_who_ran_beside_another_at_any_time_has_shared_it_and_that_is_told_once(underway):
    assert underway.begin(Trial(0, {})) == set()
    assert underway.begin(Trial(1, {})) == {0, 1}
    assert underway.begin(Trial(2, {})) == {2}
    underway.end(1, COMPLETED, Measurement())
    underway.end(2, COMPLETED, Measurement())
    assert underway.end(0, COMPLETED, Measurement()).measurement.shared
    assert underway.begin(Trial(3, {})) == set()
    assert not underway.end(3, COMPLETED, Measurement()).measurement.shared


def test_what_has_shared_before_a_kill_still_has(clock):
    underway = Underway(clock, shared={4})
    underway.begin(Trial(4, {}))
    assert underway.end(4, COMPLETED, Measurement()).measurement.shared


def test_a_trial_that_was_broken_off_may_begin_again_and_counts_from_then(underway, clock):
    trial = Trial(0, {})
    underway.begin(trial)
    clock.now = 5.0
    assert underway.take(0) is trial
    assert underway.take(0) is None
    underway.begin(trial)
    clock.now = 8.0
    assert underway.end(0, COMPLETED, Measurement()).seconds == 3.0


@pytest.mark.parametrize(
    ("kind", "is_closed"),
    [
        ({}, False),
        ({"repeat": Repeat(1, 1, (1,))}, True),
        ({"race": (0, 1)}, True),
        ({"ablation_of": 1}, True),
    ],
)
def test_beside_what_confirms_nothing_else_runs(underway, kind, is_closed):
    underway.begin(Trial(3, {}, **kind))
    assert underway.is_closed is is_closed
