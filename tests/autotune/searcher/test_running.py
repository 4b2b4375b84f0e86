"""Running trials, their start times, and which of them share the machine."""

import pytest

from autotune.core.measurement import Measurement
from autotune.core.trial import Outcome, Repeat, Status, Trial
from autotune.searcher.running import RunningTrials

COMPLETED = Outcome(Status.COMPLETED)


@pytest.fixture
def running(clock):
    return RunningTrials(clock)


def test_a_trial_ends_once_with_its_duration(running, clock):
    running.begin(Trial(0, {}))
    clock.now = 7.0
    ended = running.end(0, COMPLETED, Measurement())
    assert (ended.seconds, ended.outcome, ended.measurement.shared) == (7.0, COMPLETED, False)
    assert running.end(0, COMPLETED, Measurement()) is None
    assert (len(running), running.get(0)) == (0, None)


def test_overlapping_trials_are_shared_and_reported_once(running):
    assert running.begin(Trial(0, {})) == set()
    assert running.begin(Trial(1, {})) == {0, 1}
    assert running.begin(Trial(2, {})) == {2}
    running.end(1, COMPLETED, Measurement())
    running.end(2, COMPLETED, Measurement())
    assert running.end(0, COMPLETED, Measurement()).measurement.shared
    assert running.begin(Trial(3, {})) == set()
    assert not running.end(3, COMPLETED, Measurement()).measurement.shared


def test_a_trial_shared_before_a_kill_stays_shared(clock):
    running = RunningTrials(clock, shared={4})
    running.begin(Trial(4, {}))
    assert running.end(4, COMPLETED, Measurement()).measurement.shared


def test_an_interrupted_trial_is_timed_from_its_new_start(running, clock):
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
        ({"repeat": Repeat(1, 1)}, False),
        ({"race": (0, 1)}, True),
        ({"ablation_of": 1}, True),
    ],
)
def test_nothing_runs_alongside_a_race_or_a_step(running, kind, is_closed):
    running.begin(Trial(3, {}, **kind))
    assert running.is_closed is is_closed
