"""The remaining budget of a search."""

from dataclasses import replace

import pytest

from autotune.judging.decisions.history import History
from autotune.searcher import allowance as allowances
from autotune.searcher.allowance import Allowance
from autotune.storage.study_file import SearchPlan


def test_spent_time_continues_from_earlier_runs(clock):
    allowance = Allowance(SearchPlan(5, 60.0, spent_s=10.0), clock)
    clock.now += 20
    assert (allowance.spent_s, allowance.plan()) == (30.0, SearchPlan(5, 60.0, spent_s=30.0))
    assert (allowance.has_time_for(30.0), allowance.has_time_for(30.1)) == (True, False)
    clock.now += 30
    assert allowance.has_time_for(0), "exactly at the limit"
    clock.now += 1
    assert not allowance.has_time_for(0)


def test_without_a_limit_there_is_always_time(clock):
    allowance = Allowance(SearchPlan(5, None), clock)
    clock.now += 1e9
    assert allowance.has_time_for(0)
    assert allowance.has_time_for(1e9)
    assert allowance.has_time_to_search(1e9)


def test_at_most_half_of_the_time_is_reserved_for_confirming(clock):
    allowance = Allowance(SearchPlan(5, 100.0), clock)
    clock.now += 45
    assert allowance.has_time_to_search(55.0)
    assert allowance.has_time_to_search(90.0), "at most half of the limit is reserved"
    clock.now += 6
    assert not allowance.has_time_to_search(90.0)


def test_the_number_of_trials_left_is_never_negative(clock):
    allowance = Allowance(SearchPlan(5, None), clock)
    assert [allowance.trials_left(searched) for searched in (0, 4, 5, 6)] == [5, 1, 0, 0]


@pytest.fixture
def known(make_trial, space):
    """A history with a baseline of 97 s; a confirmation takes 642 s: a race of a minute and six seeds."""
    return History([replace(make_trial(0, 10, curve=[0.2]), seconds=97.0)], space)


@pytest.mark.parametrize(("time_s", "share"), [(9000.0, 1.0), (800.0, 0.75), (300.0, 0.28)])
def test_trainings_are_shortened_if_time_allows_fewer_than_a_dozen(known, clock, time_s, share):
    assert Allowance(SearchPlan(40, time_s), clock).share(known) == pytest.approx(share, abs=0.01)


def test_after_a_dozen_trials_none_is_shortened(known, clock):
    (baseline,) = known.trials
    for count in (12, 20):
        trials = [replace(baseline, number=number) for number in range(count)]
        assert Allowance(SearchPlan(40, 300.0), clock).share(History(trials, known.space)) == 1.0


def with_repeats(known, repeats):
    return History(known.trials, known.space.revised(budget={"repeats": repeats}))


def test_a_short_limit_is_reported_with_a_recommendation(known):
    assert allowances.forecast(known, SearchPlan(40, 1500.0, spent_s=100.0), 1) == (
        "A trial takes 1m 37s: 25m is enough for about 7 trials and confirming a winner; 40m recommended."
    )


def test_a_limit_too_short_for_a_second_trial_is_reported(known):
    assert allowances.forecast(known, SearchPlan(40, 600.0, spent_s=100.0), 1) == (
        "A trial takes 1m 37s: 10m is probably too short for a second trial and confirming a winner; "
        "40m recommended."
    )


def test_only_the_usual_number_of_seeds_is_counted(known):
    plan = SearchPlan(40, 1500.0, spent_s=100.0)
    assert allowances.forecast(with_repeats(known, 6), plan, 1) == allowances.forecast(known, plan, 1)


def test_without_repeats_no_confirmation_is_counted(known):
    assert allowances.forecast(with_repeats(known, 0), SearchPlan(40, 600.0, spent_s=100.0), 1) == (
        "A trial takes 1m 37s: 10m is enough for about 6 trials; 20m recommended."
    )


def test_concurrent_trials_take_less(known):
    plan = SearchPlan(40, 600.0, spent_s=100.0)
    assert "about 6 trials; 20m" in allowances.forecast(with_repeats(known, 0), plan, 1)
    assert allowances.forecast(with_repeats(known, 0), plan, 4) is None
    plan = SearchPlan(40, 300.0, spent_s=100.0)
    assert "about 9 trials; 10m" in allowances.forecast(with_repeats(known, 0), plan, 4)
    assert allowances.forecast(known, plan, 0) is None, "no node of a cluster is left"


@pytest.mark.parametrize(
    "plan",
    [
        SearchPlan(40, None),
        SearchPlan(40, 2000.0, spent_s=100.0),
        SearchPlan(4, 1200.0, spent_s=100.0),
        SearchPlan(1, 60.0),
    ],
    ids=["no limit", "enough for a dozen", "enough for all", "nothing but the baseline"],
)
def test_a_limit_that_is_enough_is_not_mentioned(known, plan):
    assert allowances.forecast(known, plan, 1) is None


def test_there_is_no_forecast_before_the_baseline_has_completed(make_trial, space):
    for trials in ([], [make_trial(0, failure="oom")], [replace(make_trial(0), outcome=None)]):
        assert allowances.forecast(History(trials, space), SearchPlan(40, 60.0), 1) is None
