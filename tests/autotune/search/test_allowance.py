"""What a search may still spend."""

import pytest

from autotune.search.allowance import Allowance
from autotune.storage.study_file import Plan


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def test_time_goes_on_from_what_earlier_runs_have_spent(clock):
    allowance = Allowance(Plan(5, 60.0, spent_s=10.0), clock)
    clock.now += 20
    assert (allowance.spent_s, allowance.plan()) == (30.0, Plan(5, 60.0, spent_s=30.0))
    assert (allowance.has_time_for(30.0), allowance.has_time_for(30.1)) == (True, False)
    clock.now += 30
    assert not allowance.is_time_up, "it has all of its time"
    clock.now += 1
    assert allowance.is_time_up


def test_without_a_limit_there_is_always_time(clock):
    allowance = Allowance(Plan(5, None), clock)
    clock.now += 1e9
    assert not allowance.is_time_up
    assert allowance.has_time_for(1e9)
    assert allowance.has_time_to_search(1e9)


def test_time_to_confirm_is_kept_but_no_more_than_half_of_all(clock):
    allowance = Allowance(Plan(5, 100.0), clock)
    clock.now += 45
    assert allowance.has_time_to_search(55.0)
    assert allowance.has_time_to_search(90.0), "what was not searched for need not be confirmed"
    clock.now += 6
    assert not allowance.has_time_to_search(90.0)


def test_trials_that_are_left_are_never_fewer_than_none(clock):
    allowance = Allowance(Plan(5, None), clock)
    assert [allowance.trials_left(searched) for searched in (0, 4, 5, 6)] == [5, 1, 0, 0]
