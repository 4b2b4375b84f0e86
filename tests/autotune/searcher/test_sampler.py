"""Suggestions, and feedback to the sampler, with the real Optuna."""

import math
import random
from dataclasses import replace

import pytest

from autotune.core.settings import settings_key
from autotune.core.trial import RejectedFor
from autotune.judging.decisions.history import History
from autotune.searcher import sampler
from autotune.searcher.sampler import Feedback, Refusal, Sampler
from autotune.space import configurations, distributions, spaces
from autotune.space.knobs import Distribution
from autotune.space.sections import Objective

TRIED = Refusal(RejectedFor.TRIED, "was already tried")

NAMED = """
workload: some.module:fit
baseline: {micro_batch_size: 4, precision: fp32, workers: 2, rate: 0.1}
knobs:
  micro_batch_size: {choice: [4, 8, 16, 32]}
  precision: {choice: [fp32, bf16, fp16]}
  workers: {randint: [0, 4]}
  rate: {loguniform: [0.01, 1.0]}
"""


@pytest.fixture
def named():
    return spaces.complete(spaces.parse(NAMED, "test"), "test")


def accept(config):
    return config


def once(seen):
    """Accepts every configuration once."""

    def screen(config):
        key = settings_key(config, ())
        if key in seen:
            return TRIED
        seen.add(key)
        return config

    return screen


def test_parameters_invert_configuration(space, named):
    rng = random.Random(0)
    for where in (space, named):
        for config in [where.baseline_config, *list(configurations.shuffled(where, rng))[:50]]:
            found = distributions.configuration(distributions.parameters(config, where), where)
            assert found == pytest.approx(config)


def test_powers_of_two_are_searched_by_their_exponent_and_a_rate_by_its_multiplier(space):
    parameters = distributions.parameters(space.baseline_config, space)
    assert parameters["log2_micro_batch_size"] == 4
    assert parameters["learning_rate_multiplier"] == 1.0


def test_a_suggestion_is_in_the_space_and_follows_the_learning_rate_rule(space):
    suggests = Sampler(space, seed=0)
    for _ in range(20):
        config, passed = suggests.suggest(accept)
        assert passed == []
        exact = space.learning_rate(config, 1.0)
        assert 0.499 * exact <= config["learning_rate"] <= 2.001 * exact
        for name in ("micro_batch_size", "accumulation_steps", "precision"):
            assert config[name] in space.knobs[name].choice


def test_equal_seeds_suggest_the_same(space):
    first, again, other = (Sampler(space, seed).suggest(accept)[0] for seed in (1, 1, 2))
    assert first == again != other


def test_an_exhausted_space_ends(grid):
    suggests, seen, found = Sampler(grid, seed=0), set(), []
    screen = once(seen)
    while (config := suggests.suggest(screen)[0]) is not None:
        found.append(config)
    assert sorted(map(repr, found)) == sorted(map(repr, configurations.allowed(grid)))


def test_a_neighbour_replaces_a_tried_suggestion(grid):
    for seed in range(10):
        asked = []

        def screen(config, asked=asked):
            asked.append(config)
            return TRIED if len(asked) == 1 else config

        config, _ = Sampler(grid, seed).suggest(screen)
        first, other = configurations.drawn_values(grid, asked[0]), configurations.drawn_values(grid, config)
        assert sum(first[name] != other[name] for name in first) == 1


def test_refused_suggestions_are_returned_with_their_reasons(grid):
    def screen(config):
        if config["micro_batch_size"] > 8:
            return Refusal(RejectedFor.MEMORY, "does not fit", sampler.worst(grid))
        return config

    for seed in range(10):
        config, passed = Sampler(grid, seed).suggest(screen)
        assert config["micro_batch_size"] <= 8
        assert all(one.config["micro_batch_size"] > 8 for one in passed)
        assert {(one.kind, one.reason) for one in passed} <= {(RejectedFor.MEMORY, "does not fit")}


def test_screening_may_replace_a_suggestion(grid):
    smaller = {**grid.baseline_config, "micro_batch_size": 8}
    assert Sampler(grid, seed=0).suggest(lambda _: smaller)[0] == smaller


@pytest.fixture
def baseline(make_trial):
    return make_trial(0, 10, curve=[0.1, 0.2], peak=10, limit=100)


def test_the_feedback_of_a_completed_trial_is_its_speed(make_trial, space, baseline):
    assert sampler.feedback(baseline, History([baseline], space)) == Feedback((10,), 0.0)
    trial = make_trial(1, 40, curve=[0.1, 0.2])
    assert sampler.feedback(trial, History([baseline, trial], space)) == Feedback((40,), 0.0)


def test_lost_quality_and_excess_memory_are_violations(make_trial, space, baseline):
    poor = make_trial(1, 40, curve=[0.1, 0.1])
    assert sampler.feedback(poor, History([baseline, poor], space)).violation == pytest.approx(0.45)
    heavy = make_trial(1, 40, curve=[0.1, 0.2], peak=90, limit=100)
    assert sampler.feedback(heavy, History([baseline, heavy], space)).violation == pytest.approx(0.05)


def test_the_feedback_of_a_stopped_trial_uses_its_figures_so_far(make_trial, space, baseline):
    stopped = make_trial(1, 5, curve=[0.1], stopped=True)
    assert sampler.feedback(stopped, History([baseline, stopped], space)) == Feedback((5,), 0.0)
    poor = make_trial(1, 5, curve=[0.05], stopped=True)
    assert sampler.feedback(poor, History([baseline, poor], space)).violation == pytest.approx(0.45)
    early = make_trial(1, 5, stopped=True)
    assert sampler.feedback(early, History([baseline, early], space)) == Feedback((5,), 0.0)


@pytest.mark.parametrize("figures", [(None, 0.2), (10.0, math.nan), (10.0, math.inf)])
def test_a_trial_without_figures_gets_the_worst_feedback(make_trial, space, baseline, figures):
    speed, quality = figures
    trial = make_trial(1, speed, curve=[quality, quality])
    assert sampler.feedback(trial, History([baseline, trial], space)) == sampler.worst(space)


def test_a_failed_or_running_trial_gets_the_worst_feedback(make_trial, space, baseline):
    failed = make_trial(1, 40, curve=[0.2], failure="error")
    assert sampler.feedback(failed, History([baseline, failed], space)) == Feedback((0.0,), 1.0)
    running = replace(failed, outcome=None)
    assert sampler.feedback(running, History([baseline, running], space)) == Feedback((0.0,), 1.0)


def test_configurations_outside_the_settled_space_are_ignored(make_trial, space):
    config = space.baseline_config
    fixed = space.model_copy(update={"knobs": {**space.knobs, "precision": Distribution(choice=("fp32",))}})
    known = Sampler(fixed, seed=0)
    for number, precision in enumerate(("fp32", "bf16")):
        trial = make_trial(number, 10, 0.2, **{**config, "precision": precision})
        known.started(trial)
        known.ended(trial, Feedback((10.0,)))
    assert len(known._study.get_trials()) == 1


def test_with_a_target_the_sooner_the_better(make_trial, space, baseline):
    goal = space.revised(objective={"target": 0.15})
    sooner = make_trial(1, 5, curve=[0.15, 0.15])
    later = make_trial(2, 10, curve=[0.1] * 6 + [0.15, 0.15])
    assert sampler.feedback(sooner, History([baseline, sooner], goal)) == Feedback((5 / 200,), 0.0)
    assert sampler.feedback(later, History([baseline, later], goal)) == Feedback((10 / 800,), 0.0)


def test_missing_the_target_is_a_violation(make_trial, space, baseline):
    goal = space.revised(objective={"target": 0.2})
    near, far = make_trial(1, 10, curve=[0.18, 0.18]), make_trial(2, 10, curve=[0.1, 0.1])
    found = [sampler.feedback(trial, History([baseline, trial], goal)).violation for trial in (near, far)]
    assert found == [pytest.approx(0.1), pytest.approx(0.5)]
    nothing = make_trial(3, 10)
    assert sampler.feedback(nothing, History([baseline, nothing], goal)).violation == 1.0


def test_breaking_a_constraint_gets_the_worst_feedback(make_trial, space, baseline):
    goal = space.revised(objective={"constraints": {"rouge_l": ">= 0.2"}})
    keeps, breaks = (make_trial(n, 40, curve=[0.2, 0.2], scores={"rouge_l": n / 10}) for n in (2, 1))
    assert sampler.feedback(keeps, History([baseline, keeps], goal)).violation == 0.0
    assert sampler.feedback(breaks, History([baseline, breaks], goal)) == sampler.worst(goal)


def test_under_same_training_quality_is_no_limit(make_trial, space, baseline):
    same = space.revised(objective={"select": "same-training"})
    poor = make_trial(1, 40, curve=[0.01, 0.01])
    assert sampler.feedback(poor, History([baseline, poor], same)) == Feedback((40.0,), 0.0)
    assert sampler.feedback(poor, History([baseline, poor], space)).violation > 0.5


def test_under_pareto_speed_and_quality_are_separate_values(make_trial, space, baseline):
    front = space.revised(objective={"select": "pareto"})
    trial = make_trial(1, 40, curve=[0.05, 0.1])
    found = sampler.feedback(trial, History([baseline, trial], front))
    assert found == Feedback((40, pytest.approx(0.5)), 0.0)
    assert sampler.worst(front) == Feedback((0.0, 0.0), 1.0)
    suggests = Sampler(front, seed=0)
    suggests.started(trial := replace(trial, config=front.baseline_config))
    suggests.ended(trial, Feedback((40, 0.5)))
    assert suggests.suggest(accept)[0] is not None


def test_a_stopped_trial_is_compared_within_the_baselines_curve(make_trial, space, baseline):
    longer = make_trial(1, 5, curve=[0.05, 0.1, 0.9], stopped=True)
    assert sampler.feedback(longer, History([baseline, longer], space)).violation == pytest.approx(0.45)


def test_a_loss_that_is_too_high_is_a_violation(make_trial, space):
    """Inside the tuner a loss is negative: 2.2 is a tenth worse than 2."""
    lower = space.model_copy(update={"objective": Objective(minimize="val_loss", within=0.1)})
    trials = [make_trial(n, 40, curve=[-4.0, end]) for n, end in ((0, -2.0), (1, -2.2), (2, -2.05))]
    violations = [sampler.feedback(trial, History(trials, lower)).violation for trial in trials]
    assert violations == [0.0, pytest.approx(0.05), 0.0]
    target = space.model_copy(update={"objective": Objective(minimize="val_loss", target=2.0)})
    assert sampler.feedback(trials[1], History(trials, target)).violation == pytest.approx(0.1)


def test_optuna_sees_a_broken_constraint_as_infeasible(make_trial, space, baseline):
    goal = space.revised(objective={"constraints": {"rouge_l": ">= 0.2"}})
    breaks = make_trial(1, 40, curve=[0.2, 0.2], scores={"rouge_l": 0.1}, **goal.baseline_config)
    informed = sampler.informed(History([baseline, breaks], goal), (), seed=0)
    (known,) = [t for t in informed._study.get_trials() if t.values == [0.0]]
    assert known.constraints == {"limits": 1.0}


def test_of_very_many_results_the_sampler_learns_the_best_and_the_newest(make_trial, grid):
    trials = [make_trial(n, 99.0 if n == 3 else 10.0, 0.2, micro_batch_size=4, x=n) for n in range(1000)]
    history = History(trials, grid)
    learnt = [trial.number for trial, _ in sampler.learnable(trials, history)]
    assert len(learnt) <= 300
    assert learnt[-150:] == list(range(850, 1000))
    assert 3 in learnt
    assert [trial.number for trial, _ in sampler.learnable(trials[:500], history)] == list(range(500))
