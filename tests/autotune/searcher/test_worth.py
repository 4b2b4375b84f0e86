"""Whether another trial may save more of the trainings to come than it costs."""

import pytest

from autotune.judging.decisions.history import History
from autotune.searcher.allowance import next_trial_pays


@pytest.fixture
def pays(space, make_trial):
    """Returns the answer after trials of 10 s with the speeds given, all with the baseline's quality."""

    def ask(worth, *speeds):
        trials = [
            make_trial(number, speed, 0.2, half_width=speed / 100, num_workers=number)
            for number, speed in enumerate(speeds)
        ]
        return next_trial_pays(History(trials, space.revised(budget={"worth": worth})))

    return ask


def test_without_a_worth_every_trial_does(pays):
    assert pays(None, *[10.0] * 50)


def test_before_anything_has_run_it_does(pays):
    assert pays(1)


def test_the_chance_of_a_better_one_falls_with_every_trial(pays):
    """At 10% of 1000 s, ten trials of 10 s are too many."""
    assert pays(1000, *[10.0] * 7)
    assert not pays(1000, *[10.0] * 9)


def test_many_hours_are_worth_many_trials(pays):
    assert pays(108_000, *[10.0] * 40)
    assert not pays(30, 10.0)


def test_gains_so_far_promise_more_and_what_is_gained_leaves_less_to_save(pays):
    assert not pays(1000, *[10.0] * 9)
    assert pays(1000, *[10.0] * 8, 15.0), "a third of what is left, instead of a tenth"
    assert not pays(1000, 10.0, *[100.0] * 9), "only 100 s are left"
