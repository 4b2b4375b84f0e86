"""The strategies that this search is compared with."""

import math
import random
from collections import defaultdict

import pytest
from optuna.samplers import RandomSampler
from optuna.trial import TrialState

from autotune.core.trial import Status
from lab.replay import scoring, strategies
from lab.replay.scoring import Truth
from lab.replay.table import Header, Table

SAMPLED = ["optuna", "told", "gp", "random", "asha", "bohb"]


@pytest.mark.parametrize("name", SAMPLED)
def test_a_sampled_search_starts_at_the_baseline_and_is_confirmed_like_ours(recorded, name):
    if name == "gp":
        pytest.importorskip("scipy")
    result = strategies.OTHERS[name](recorded, 0, 15)
    searched = [t for t in result.trials if t.kind == "searched"]
    assert len(searched) == 15
    assert searched[0].config == recorded.space.baseline_config
    assert all(t.outcome is not None for t in result.trials)
    assert [t.number for t in result.trials] == list(range(len(result.trials)))
    if result.claims_gain:
        assert Truth(recorded).speed(result.winner) > Truth(recorded).speed(searched[0].config)
    else:
        assert result.winner == recorded.space.baseline_config
    assert result == strategies.OTHERS[name](recorded, 0, 15), "equal seeds"


def test_only_successive_halving_cuts_trials_short(recorded):
    stopped = {
        name: sum(t.outcome.status is Status.STOPPED for t in strategies.OTHERS[name](recorded, 0, 15).trials)
        for name in ("optuna", "random", "asha", "bohb")
    }
    assert stopped["asha"] > 0 < stopped["bohb"]
    assert stopped["optuna"] == stopped["random"] == 0


@pytest.mark.parametrize(("constrained", "state"), [(True, TrialState.COMPLETE), (False, TrialState.FAIL)])
def test_a_failed_trial_is_ignored_or_told_as_one_that_breaks_a_constraint(
    grid, make_trial, constrained, state
):
    sampled = strategies._Sampled(grid, RandomSampler(seed=0), constrained=constrained)
    baseline = make_trial(0, 10.0, 0.2)
    config = sampled([baseline])
    sampled([baseline, make_trial(1, failure="oom", **config)])
    assert sampled._study.trials[0].state is state


def test_the_oracle_tries_the_best_configuration_alone(recorded):
    result = scoring.VARIANTS["oracle"](recorded, 0, 15)
    _, best = [t for t in result.trials if t.kind == "searched"]
    truth = Truth(recorded)
    assert truth.share(best.config) == 1
    assert (result.claims_gain, result.winner) == (True, best.config)


def test_doubling_ends_with_the_first_batch_that_does_not_fit(recorded):
    result = strategies.OTHERS["doubling"](recorded, 0, 15)
    searched = [t for t in result.trials if t.kind == "searched"]
    assert [t.config["micro_batch_size"] for t in searched] == [4, 8, 16, 32]
    assert searched[-1].out_of_memory
    assert {t.config["num_workers"] for t in searched} == {0}


@pytest.fixture
def with_target(recorded):
    """The same table, in which the first to reach 0.12 wins; the spoiled rate reaches it in no run."""
    space = recorded.space.revised(objective={"target": 0.12})
    configs = [run for runs in recorded._by_quality.values() for run in runs]
    return Table(Header(space, {}), configs)


def test_zeus_needs_a_target(recorded, with_target):
    assert not scoring.suits("zeus", recorded)
    assert scoring.suits("zeus", with_target)


def test_zeus_explores_every_batch_twice_and_goes_on_with_the_quickest(with_target):
    result = strategies.OTHERS["zeus"](with_target, 0, 15)
    sizes = [t.config["micro_batch_size"] for t in result.trials if t.kind == "searched"]
    assert sizes[:4] == [4, 8, 16, 32], "upwards from the default, which is the smallest, until one fails"
    assert sorted(sizes[4:7]) == [4, 8, 16]
    assert set(sizes[7:]) == {16}


def test_zeus_gives_up_a_direction_once_a_batch_does_not_reach_the_target(with_target):
    space, costs = with_target.space, defaultdict(list)
    sizes = strategies._zeus_sizes(
        space.model_copy(update={"baseline": {**space.baseline, "micro_batch_size": 16}}),
        random.Random(0),
        costs,
    )
    tried = []
    for _ in range(3):
        tried.append(next(sizes))
        costs[tried[-1]].append(math.inf if tried[-1] == 8 else 1.0)
    assert tried == [16, 8, 32], "4 is not tried after 8"


def test_a_profile_is_the_share_of_replays_within_so_many_times_the_quickest():
    profiles = scoring.profiles(
        {
            "one": {"a": 10.0, "b": 10.0, "c": None, "d": 40.0},
            "other": {"a": 20.0, "b": None, "c": None, "d": 10.0},
            "fits c and d alone": {"c": None, "d": 41.0},
        }
    )
    assert profiles == {
        "one": (0.5, 0.5, 0.75),
        "other": (0.25, 0.5, 0.5),
        "fits c and d alone": (0.0, 0.0, 0.0),
    }
