"""Which knobs matter: told of those that may, with intervals, and only where enough is known."""

import math
import random
from dataclasses import replace

import pytest

from autotune.judging import ablation
from autotune.judging.history import History
from autotune.reports.importance import importance
from autotune.space import space as spaces

from .searched import confirmed, trial

SIZES, WORKERS, RATES = (4, 8, 16, 32, 64), (0, 2, 4, 8), (0.5, 2.0)
PRECISIONS = ("fp32", "bf16", "fp16")
OF_SPEED = {"micro_batch_size", "accumulation_steps", "precision", "num_workers"}
OF_QUALITY = {"micro_batch_size", "accumulation_steps", "precision", "learning_rate"}


def searched(space, speed_of, quality_of, count=40, **rest):
    """Trials over three knobs and a learning rate that is half or twice what follows from the batch."""
    rng, trials = random.Random(0), []
    for n in range(count):
        drawn = space.drawn(space.baseline_config) | {
            "micro_batch_size": rng.choice(SIZES),
            "num_workers": rng.choice(WORKERS),
            "precision": rng.choice(PRECISIONS),
            "learning_rate": rng.choice(RATES),
        }
        config = space.config(drawn)
        trials.append(trial(space, n, speed_of(drawn), quality_of(drawn), **config, **rest))
    return trials


def by_batch(drawn):
    return float(drawn["micro_batch_size"])


def by_rate(drawn):
    return 0.1 * drawn["learning_rate"]


def told(trials, space):
    return importance(History(trials, space))


def test_what_decides_about_speed_and_about_quality_is_told_apart(space):
    found = told(searched(space, by_batch, by_rate), space)
    assert list(found) == ["throughput", "bleu_4"]
    assert [next(iter(shares)) for shares in found.values()] == ["micro_batch_size", "learning_rate"]
    for shares in found.values():
        values = [share.value for share in shares.values()]
        assert sum(values) == pytest.approx(1.0)
        assert values == sorted(values, reverse=True)
        assert all(0 <= share.low <= share.value <= share.high <= 1 for share in shares.values())


def test_only_knobs_that_may_move_it_have_a_share(space):
    """Here the learning rate follows the batch, and so goes up and down with the speed."""
    found = told(searched(space, by_batch, by_rate), space)
    assert found["throughput"].keys() == OF_SPEED
    assert found["bleu_4"].keys() == OF_QUALITY


@pytest.mark.parametrize("seed", range(10))
def test_of_figures_that_no_knob_has_made_nothing_is_told(space, seed):
    rng = random.Random(seed)
    trials = searched(space, lambda _: rng.uniform(9, 11), lambda _: rng.uniform(0.19, 0.21), count=24)
    assert told(trials, space) == {}


def test_of_stopped_trials_the_speed_counts_and_the_quality_does_not(space):
    assert list(told(searched(space, by_batch, by_rate, status="stopped"), space)) == ["throughput"]


def test_of_too_few_trials_or_where_nothing_varies_nothing_is_told(space):
    assert told([], space) == {}
    assert told(searched(space, by_batch, by_rate, count=19), space) == {}
    assert told(searched(space, lambda _: 10.0, lambda _: 0.2), space) == {}
    assert told(searched(space, by_batch, by_rate, failure="oom"), space) == {}


def test_steps_of_the_ablation_and_what_is_outside_the_space_do_not_count(space):
    assert told(searched(space, by_batch, by_rate, ablation_of=1), space) == {}
    other = spaces.complete(space.model_copy(update={"knobs": dict(list(space.knobs.items())[:3])}), "test")
    assert told(searched(space, by_batch, by_rate), other) == {}


def test_where_there_is_an_ablation_its_factors_are_what_matters(space):
    trials = confirmed(space)
    assert told(trials, space) == {}, "none of its steps has been measured"
    half = ablation.steps(History(trials, space))[0].config
    trials.append(trial(space, 10, 20, None, ablation_of=1, status="stopped", **dict(half)))
    shares = told(trials, space)["throughput"]
    steps = {step.knob: step.factor for step in ablation.steps(History(trials, space))}
    logs = {knob: math.log(factor.value) for knob, factor in steps.items()}
    assert {knob: share.value for knob, share in shares.items()} == pytest.approx(
        {knob: log / sum(logs.values()) for knob, log in logs.items()}
    )
    assert all(share.low < share.value < share.high for share in shares.values())


def test_a_change_that_has_slowed_down_matters_too_and_changes_that_were_measured_together_do(space):
    trials = confirmed(space)
    half = ablation.steps(History(trials, space))[0].config
    trials.append(trial(space, 10, 5, None, ablation_of=1, status="stopped", **dict(half)))
    shares = told(trials, space)["throughput"]
    assert sum(share.value for share in shares.values()) == pytest.approx(1.0)
    assert all(share.value > 0 for share in shares.values())
    failed = replace(trials[-1], outcome=trial(space, 0, None, None, failure="error").outcome)
    assert told([*trials[:-1], failed], space) == {}, "of what is one factor no share is known"
