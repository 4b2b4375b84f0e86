"""What is done about the end of an attempt."""

import pytest

from autotune.core.trial import Failure, Outcome, Shortage, Status
from autotune.training.answers import Tried, answer

SETTINGS = {"micro_batch_size": 16, "accumulation_steps": 2, "learning_rate": 1e-3}
HALVED = {"micro_batch_size": 8, "accumulation_steps": 4}


def failed(failure, reason="", shortage=None, *, is_passing=False):
    return Outcome(Status.FAILED, failure, reason, shortage, is_passing)


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(Status.COMPLETED),
        failed(Failure.DIVERGED, "the loss is nan"),
        failed(Failure.ERROR, "ValueError: image 7 has no caption"),
        failed(Failure.ERROR, "OSError: [Errno 5] Input/output error"),  # words decide nothing here
    ],
)
def test_what_another_attempt_would_meet_again_is_the_end(outcome):
    assert answer(outcome, SETTINGS, Tried(1, 100), most=3) is None


def test_a_passing_fault_is_tried_again_as_it_was():
    found = answer(failed(Failure.ERROR, is_passing=True), SETTINGS, Tried(1, 100), most=3)
    assert found is not None
    assert (dict(found.changes), found.wait_s) == ({}, 2.0)


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(Status.INTERRUPTED, Failure.LOST, "killed by SIGKILL"),
        failed(Failure.TIMEOUT, "no record for 300 s"),
        failed(Failure.OOM, "a loader's worker was killed", Shortage.KILLED_WORKER),
    ],
)
def test_what_was_ended_from_outside_or_hung_is_tried_again(outcome):
    assert answer(outcome, SETTINGS, Tried(1, 100), most=3) is not None


def test_attempts_that_come_no_further_are_bounded_and_wait_longer_and_longer():
    outcome, tried, waits = Outcome(Status.INTERRUPTED, Failure.LOST), Tried(), []
    for _ in range(5):
        tried = tried.after(100)
        found = answer(outcome, SETTINGS, tried, most=3)
        waits.append(found and found.wait_s)
    assert waits == [2.0, 4.0, 8.0, None, None]


def test_who_comes_further_may_be_tried_for_ever():
    outcome, tried = Outcome(Status.INTERRUPTED, Failure.LOST), Tried()
    for samples in range(100, 2000, 100):
        tried = tried.after(samples)
        assert answer(outcome, SETTINGS, tried, most=3) is not None
    assert answer(outcome, SETTINGS, tried.after(10), most=3) is not None  # nothing is forgotten of the best
    assert tried.after(10).samples == 1900


def test_out_of_memory_halves_the_micro_batch_and_keeps_the_effective_one():
    found = answer(failed(Failure.OOM, "CUDA out of memory"), SETTINGS, Tried(1, 100), most=3)
    assert dict(found.changes) == {"micro_batch_size": 8, "accumulation_steps": 4}
    assert "8x4 instead of 16x2" in found.text


@pytest.mark.parametrize(
    ("outcome", "times", "sizes"),
    [
        (failed(Failure.OOM, "killed by the kernel", Shortage.MACHINE), 3, {}),
        (failed(Failure.OOM, "killed by the kernel", Shortage.MACHINE), 4, HALVED),
        (failed(Failure.OOM, "a loader's worker was killed", Shortage.KILLED_WORKER), 3, {}),
        (failed(Failure.OOM, "a loader's worker was killed", Shortage.KILLED_WORKER), 4, HALVED),
        (Outcome(Status.INTERRUPTED, Failure.LOST, "killed by SIGKILL"), 4, None),
        (failed(Failure.TIMEOUT, "no record for 300 s"), 4, None),
    ],
)
def test_what_others_may_have_taken_of_the_memory_is_waited_for_before_it_is_halved(outcome, times, sizes):
    found = answer(outcome, SETTINGS, Tried(times, 100), most=3)
    assert (found and dict(found.changes)) == sizes


@pytest.mark.parametrize(
    "settings",
    [
        {"micro_batch_size": 1, "accumulation_steps": 8},
        {"micro_batch_size": 5, "accumulation_steps": 8},
        {"micro_batch_size": 16},
        {"learning_rate": 1e-3},
    ],
)
def test_what_cannot_be_halved_is_the_end(settings):
    assert answer(failed(Failure.OOM, "out of memory"), settings, Tried(1, 100), most=3) is None
