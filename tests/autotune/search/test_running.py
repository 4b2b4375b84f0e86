"""Which trials run, since when, and which of them share what they run on."""

import pytest

from autotune.core.measurement import Measurement
from autotune.core.trial import Outcome, Repeat, Status, Trial
from autotune.search.running import RunningTrials

COMPLETED = Outcome(Status.COMPLETED)


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def running(clock):
    return RunningTrials(clock)


def test_a_trial_that_ends_has_what_it_took_and_ends_once(running, clock):
    running.begin(Trial(0, {}))
    clock.now = 7.0
    ended = running.end(0, COMPLETED, Measurement())
    assert (ended.seconds, ended.outcome, ended.measurement.shared) == (7.0, COMPLETED, False)
    assert running.end(0, COMPLETED, Measurement()) is None
    assert (len(running), running.get(0)) == (0, None)


def test_who_ran_beside_another_at_any_time_has_shared_it_and_that_is_told_once(running):
    assert running.begin(Trial(0, {})) == set()
    assert running.begin(Trial(1, {})) == {0, 1}
    assert running.begin(Trial(2, {})) == {2}
    running.end(1, COMPLETED, Measurement())
    running.end(2, COMPLETED, Measurement())
    assert running.end(0, COMPLETED, Measurement()).measurement.shared
    assert running.begin(Trial(3, {})) == set()
    assert not running.end(3, COMPLETED, Measurement()).measurement.shared


def test_what_has_shared_before_a_kill_still_has(clock):
    running = RunningTrials(clock, shared={4})
    running.begin(Trial(4, {}))
    assert running.end(4, COMPLETED, Measurement()).measurement.shared


def test_a_trial_that_was_broken_off_may_begin_again_and_counts_from_then(running, clock):
    trial = Trial(0, {})
    running.begin(trial)
    clock.now = 5.0
    assert running.take(0) is trial
    assert running.take(0) is None
    running.begin(trial)
    clock.now = 8.0
    assert running.end(0, COMPLETED, Measurement()).seconds == 3.0


@pytest.mark.parametrize(
    ("kind", "is_closed"),
    [
        ({}, False),
        ({"repeat": Repeat(1, 1, (1,))}, True),
        ({"race": (0, 1)}, True),
        ({"ablation_of": 1}, True),
    ],
)
def test_beside_what_confirms_nothing_else_runs(running, kind, is_closed):
    running.begin(Trial(3, {}, **kind))
    assert running.is_closed is is_closed
