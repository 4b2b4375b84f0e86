"""Which trials may win, and which one does."""

import math
from dataclasses import replace

import pytest

from autotune import objective
from autotune.sections import Objective
from autotune.speeds import Speeds
from autotune.trial import Repeat

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


def test_what_was_measured_elsewhere_or_of_other_code_never_wins(make_trial):
    baseline, other = make_trial(0, 10, 0.2), make_trial(1, 99, 0.2)
    assert win([baseline, other]) == 1
    for where in ({"device": "another"}, {"revision": "another"}):
        elsewhere = replace(other, measurement=replace(other.measurement, **where))
        assert win([baseline, elsewhere]) == 0
        assert objective.pareto([baseline, elsewhere]) == [baseline]


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
    trials = [
        make_trial(0, 10, 0.2, half_width=0.1),
        make_trial(1, 41, 0.2, half_width=9.0, micro_batch_size=32),
        make_trial(2, 40, 0.2, half_width=0.5, micro_batch_size=64),
    ]
    assert win(trials) == 2


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


def test_trials_of_the_same_settings_share_their_figure_and_the_better_quality_decides(make_trial):
    baseline = make_trial(0, 10, 0.2, half_width=0.1, micro_batch_size=4)
    first = make_trial(1, 40, 0.2, half_width=0.1, learning_rate=1e-3)
    second = make_trial(2, 38, 0.3, half_width=0.1, learning_rate=2e-3)
    assert win([baseline, first, second]) == 2


@pytest.mark.parametrize("kind", [{"repeat": Repeat(0, 0, (0,))}, {"ablation_of": 3}])
def test_a_repeat_and_a_step_of_the_way_never_win_themselves(make_trial, kind):
    trials = [make_trial(0, 10, 0.2), make_trial(1, 99, 0.9, **kind)]
    assert win(trials) == 0
    assert [t.number for t in objective.pareto(trials)] == [0]


def test_what_is_to_be_kept_is_of_the_mean_of_all_the_baselines_runs(make_trial):
    baseline, trial = make_trial(0, 10, 0.2), make_trial(1, 40, 0.18, micro_batch_size=32)
    assert win([baseline, trial]) == 0
    worse = make_trial(2, 10, 0.16, repeat=Repeat(0, 0, (0,)))
    assert objective.baseline_quality([baseline, trial, worse]) == pytest.approx(0.18)
    assert win([baseline, trial, worse]) == 1
    failed = make_trial(2, failure="lost", repeat=Repeat(0, 0, (0,)))
    assert win([baseline, trial, failed]) == 0


def test_the_noise_is_that_between_the_baselines_runs(make_trial):
    runs = [make_trial(0, 10, curve=[0.9]), make_trial(1, 10, curve=[1.1], repeat=Repeat(0, 0, (0,)))]
    assert objective.noise(runs[:1]) is None
    assert objective.noise(runs) == pytest.approx(0.02**0.5)


def test_a_stopped_trial_never_wins(make_trial):
    assert win([make_trial(0, 10, 0.2), make_trial(1, 99, 0.2, stopped=True)]) == 0


def quickest(trials, target):
    goal = Objective(select="time-to-quality", target=target)
    return objective.winner(trials, goal, memory_fraction=0.85).number


def test_for_time_to_quality_the_first_at_the_target_wins_whatever_its_speed(make_trial):
    trials = [
        make_trial(0, 10, curve=[0.1, 0.1, 0.2, 0.2]),
        make_trial(1, 90, curve=[0.1, 0.1, 0.1]),
        make_trial(2, 8, curve=[0.2, 0.2]),
    ]
    assert quickest(trials, 0.2) == 2
    equal = [trials[0], make_trial(3, 5, curve=[0.2, 0.2])]
    assert quickest(equal, 0.2) == 0, "of equally quick ones that with the higher throughput"
    assert quickest(trials, 0.9) == 0, "nobody has reached it: the baseline stays"


def test_the_seconds_to_a_target_are_the_samples_to_it_over_the_throughput(make_trial):
    trial = make_trial(1, 5, curve=[0.1, 0.3, 0.3])
    assert objective.samples_to(trial, 0.2) == 200.0
    assert objective.seconds_to(trial, 0.2) == 40.0
    assert objective.seconds_to(trial, 0.4) is None
    assert objective.seconds_to(make_trial(1, curve=[0.3, 0.3]), 0.2) is None, "no throughput"
    equal = make_trial(2, 15, half_width=1.0)
    slow = make_trial(1, 5, curve=[0.1, 0.3, 0.3], half_width=1.0)
    assert objective.seconds_to(slow, 0.2, Speeds([slow, equal])) == 20.0, "its equals count"


def test_who_was_not_at_the_target_cannot_win_and_the_baseline_always_may(make_trial):
    goal = Objective(select="time-to-quality", target=0.2)
    baseline, there, not_there = (
        make_trial(n, 10, curve=curve, half_width=1.0)
        for n, curve in enumerate(([0.1, 0.1], [0.2, 0.2], [0.3, 0.1]))
    )
    assert objective.why_not_eligible(baseline, baseline, 0.1, goal, 0.85) is None
    assert objective.why_not_eligible(there, baseline, 0.1, goal, 0.85) is None
    assert objective.why_not_eligible(not_there, baseline, 0.1, goal, 0.85) is None, "on average it was"
    late = make_trial(3, 10, curve=[0.1, 0.3], half_width=1.0, collapsed=True)
    assert objective.why_not_eligible(late, baseline, 0.1, goal, 0.85) == "it has not reached bleu_4 0.2"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({}, None),
        ({"chance": 0.1}, None),
        ({"chance": 0.2}, "its quality 0.2000 is not above chance, 0.2000"),
        ({"chance": 0.3}, "its quality 0.2000 is not above chance, 0.3000"),
        ({"collapsed": True}, "it does the same whatever it sees"),
    ],
)
def test_a_quality_at_chance_or_of_a_collapsed_model_is_none(make_trial, said, why):
    trial = make_trial(1, 90, curve=[0.1, 0.2], half_width=1.0, micro_batch_size=32, **said)
    assert objective.no_quality(trial.measurement) == why
    baseline = make_trial(0, 10, curve=[0.1, 0.2], half_width=1.0)
    for keep, select, is_refused in ((0.9, "fastest", True), (0.0, "fastest", False)):
        goal = Objective(keep=keep, select=select)
        found = objective.why_not_eligible(trial, baseline, 0.2, goal, 0.85)
        assert found == (why if is_refused else None)


def test_without_an_evaluation_nothing_is_known_of_chance(make_trial):
    assert objective.no_quality(make_trial(1, 10, 0.1).measurement) is None


@pytest.mark.parametrize(
    ("constraint", "found", "why"),
    [
        (">= 0.2", 0.2, None),
        (">= 0.2", 0.19, "rouge_l is 0.19, and must be >= 0.2"),
        ("<= 0.2", 0.2, None),
        ("<= 0.2", 0.21, "rouge_l is 0.21, and must be <= 0.2"),
    ],
)
def test_a_constraint_of_the_users_own_is_kept(make_trial, constraint, found, why):
    goal = Objective(constraints={"rouge_l": constraint})
    trial = make_trial(1, 90, curve=[0.2], half_width=1.0, scores={"rouge_l": found})
    baseline = make_trial(0, 10, curve=[0.2], half_width=1.0)
    assert objective.broken_constraint(trial.measurement, goal) == why
    assert objective.why_not_eligible(trial, baseline, 0.2, goal, 0.85) == why


def test_a_figure_that_no_evaluation_has_breaks_its_constraint(make_trial):
    goal = Objective(constraints={"cider": ">= 0"})
    found = objective.broken_constraint(make_trial(1, 90, 0.2).measurement, goal)
    assert found == "no evaluation has cider, which must be >= 0"


@pytest.mark.parametrize(
    ("changes", "alike"),
    [
        ({}, True),
        ({"num_workers": 8, "precision": "bf16", "compile": True}, True),
        ({"micro_batch_size": 8, "accumulation_steps": 4}, True),
        ({"micro_batch_size": 8}, False),
        ({"accumulation_steps": 4}, False),
        ({"learning_rate": 1.0001e-4}, True),
        ({"learning_rate": 1.01e-4}, False),
        ({"dropout": 0.2}, False),
        ({"dropout": None}, False),
        ({"dropout": 0.1, "label_smoothing": 0.1}, False),
    ],
)
def test_the_same_training_is_one_of_the_same_batch_rate_and_all_that_counts(make_trial, changes, alike):
    config = {"micro_batch_size": 16, "accumulation_steps": 2, "learning_rate": 1e-4, "dropout": 0.1}
    assert objective.trains_alike(config | changes, config) is alike
    trials = [make_trial(n, 10 + n, curve=[0.2], half_width=0.1) for n in range(2)]
    baseline, trial = replace(trials[0], config=config), replace(trials[1], config=config | changes)
    same = Objective(select="same-training")
    why = objective.why_not_eligible(trial, baseline, 0.2, same, 0.85)
    assert why == (None if alike else "it trains something else than the baseline")
    assert objective.why_not_eligible(trial, baseline, 0.2, Objective(), 0.85) is None


def test_the_same_training_is_not_refused_for_a_quality_that_scatters(make_trial):
    trials = [
        make_trial(0, 10, curve=[0.2], half_width=0.1),
        make_trial(1, 20, curve=[0.1], half_width=0.1, precision="bf16"),
    ]
    assert objective.winner(trials, Objective(select="same-training"), 0.85).number == 1
    assert objective.winner(trials, Objective(), 0.85).number == 0


def test_a_search_for_a_negative_quality_keeps_the_best_and_refuses_the_worse(make_trial, space):
    trials = [
        make_trial(0, speed=10.0, curve=[-3.0, -2.0]),
        make_trial(1, speed=20.0, curve=[-3.0, -2.05]),
        make_trial(2, speed=30.0, curve=[-3.0, -2.5]),
    ]
    assert objective.winner(trials, space.objective, 0.85).number == 1
    baseline = objective.baseline_of(trials)
    why = objective.why_not_eligible(trials[2], baseline, -2.0, space.objective, 0.85)
    assert why == "bleu_4 -2.5000 is below -2.1000"
