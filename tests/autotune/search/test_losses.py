"""When a trial that is killed again and again is given up."""

import pytest

from autotune.core.trial import Failure, Outcome, Shortage, Status
from autotune.search.losses import MOST, Losses


@pytest.fixture
def losses():
    return Losses()


def test_a_trial_that_is_killed_in_the_same_place_again_and_again_is_given_up(losses):
    for _ in range(MOST - 1):
        assert losses.add(7, 100, "gone", out_of_memory=False) is None
    given_up = losses.add(7, 100, "gone", out_of_memory=False)
    assert given_up == Outcome(Status.FAILED, Failure.LOST, f"gone; {MOST} times in a row")


def test_one_that_comes_further_begins_anew(losses):
    for come_to in range(0, 1000, 100):
        for _ in range(MOST - 1):
            assert losses.add(7, come_to, "gone", out_of_memory=False) is None


def test_what_the_machine_has_no_memory_for_is_not_run_again(losses):
    ended = losses.add(7, 100, "no room", out_of_memory=True)
    assert ended == Outcome(Status.FAILED, Failure.OOM, "no room", Shortage.MACHINE)


def test_each_trial_counts_by_itself(losses):
    assert all(losses.add(number, 0, "gone", out_of_memory=False) is None for number in range(2 * MOST))
