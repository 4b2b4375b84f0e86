import math

import pytest

from autotune import objective
from autotune.space import Objective

KEEP = Objective(keep=0.95)


def win(trials):
    best = objective.winner(trials, KEEP, memory_fraction=0.85)
    return None if best is None else best.number


def test_the_fastest_that_keeps_the_quality_wins(make_trial):
    trials = [
        make_trial(0, 10, 0.20),
        make_trial(1, 40, 0.18),
        make_trial(2, 30, 0.19),
        make_trial(3, 20, 0.3),
    ]
    assert win(trials) == 2


def test_exactly_the_kept_share_is_enough(make_trial):
    assert win([make_trial(0, 10, 1.0), make_trial(1, 40, 0.95)]) == 1


def test_the_baseline_wins_when_nothing_faster_keeps_the_quality(make_trial):
    assert win([make_trial(0, 10, 0.2), make_trial(1, 40, 0.1), make_trial(2, 5, 0.3)]) == 0


@pytest.mark.parametrize("failure", ["oom", "error", "timeout"])
def test_without_a_baseline_nobody_wins(make_trial, failure):
    assert win([make_trial(0, failure=failure), make_trial(1, 40, 0.3)]) is None
    assert win([]) is None


@pytest.mark.parametrize("failure", ["oom", "error", "diverged", "timeout", "lost"])
def test_a_failed_trial_never_wins(make_trial, failure):
    assert win([make_trial(0, 10, 0.2), make_trial(1, 99, 0.9, failure=failure)]) == 0


def test_a_trial_without_figures_never_wins(make_trial):
    assert win([make_trial(0, 10, 0.2), make_trial(1, None, 0.9), make_trial(2, 99, None)]) == 0


def test_more_than_the_memory_fraction_never_wins(make_trial):
    trials = [make_trial(0, 10, 0.2), make_trial(1, 99, 0.2, peak=86, limit=100)]
    assert win(trials) == 0
    trials[1] = make_trial(1, 99, 0.2, peak=85, limit=100)
    assert win(trials) == 1


def test_the_front_has_no_trial_that_another_one_beats(make_trial):
    trials = [
        make_trial(0, 10, 0.20),
        make_trial(1, 40, 0.18),
        make_trial(2, 30, 0.17),
        make_trial(3, 20, 0.2),
    ]
    assert [t.number for t in objective.pareto(trials)] == [1, 3]


def test_the_factor_is_the_ratio_of_throughputs(make_trial):
    assert objective.factor(make_trial(1, 30, 0.2), make_trial(0, 10, 0.2)) == 3
    assert objective.factor(make_trial(1, None, 0.2), make_trial(0, 10, 0.2)) is None


def test_of_two_that_read_the_same_the_surer_one_wins(make_trial):
    trials = [make_trial(0, 10, 0.2, half_width=0.1), make_trial(1, 41, 0.2, half_width=9.0)]
    assert win([*trials, make_trial(2, 40, 0.2, half_width=0.5)]) == 2


def test_a_speed_without_an_interval_does_not_beat_a_baseline_that_has_one(make_trial):
    assert win([make_trial(0, 10, 0.2, half_width=0.1), make_trial(1, 99, 0.2)]) == 0
    assert win([make_trial(0, 10, 0.2), make_trial(1, 99, 0.2)]) == 1


def test_the_factor_lies_between_the_ends_of_the_intervals(make_trial):
    fast, slow = make_trial(1, 43, 0.2, half_width=1), make_trial(0, 9, 0.2, half_width=5)
    assert objective.factor_interval(fast, slow) == (42 / 14, 44 / 4)
    assert objective.factor_interval(fast, make_trial(0, 5, 0.2, half_width=5)) == (4.2, math.inf)
    assert objective.factor_interval(fast, make_trial(0, 9, 0.2)) is None


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_never_wins(make_trial, number):
    assert win([make_trial(0, 10, 0.2), make_trial(1, 99, number)]) == 0
    assert win([make_trial(0, 10, 0.2), make_trial(1, number, 0.9)]) == 0
