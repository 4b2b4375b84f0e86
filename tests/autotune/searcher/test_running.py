"""Running trials, their start times, and which of them share the machine."""

import pytest

from autotune.core.measurement import Measurement
from autotune.core.trial import Failure, Outcome, Repeat, Shortage, Status, Trial
from autotune.searcher.running import MOST, Losses, RunningTrials

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


@pytest.fixture
def losses():
    return Losses()


def test_a_trial_killed_repeatedly_at_the_same_place_is_given_up(losses):
    for _ in range(MOST - 1):
        assert losses.add(7, 100, "gone", out_of_memory=False) is None
    given_up = losses.add(7, 100, "gone", out_of_memory=False)
    assert given_up == Outcome(Status.FAILED, Failure.LOST, f"gone; {MOST} times in a row")


def test_progress_resets_the_count_of_kills(losses):
    for samples in range(0, 1000, 100):
        for _ in range(MOST - 1):
            assert losses.add(7, samples, "gone", out_of_memory=False) is None


def test_a_trial_that_exhausted_the_machines_memory_is_not_run_again(losses):
    ended = losses.add(7, 100, "no room", out_of_memory=True)
    assert ended == Outcome(Status.FAILED, Failure.OOM, "no room", Shortage.MACHINE)


def test_kills_are_counted_per_trial(losses):
    assert all(losses.add(number, 0, "gone", out_of_memory=False) is None for number in range(2 * MOST))
