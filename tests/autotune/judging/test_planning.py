"""How long settings have to be trained for the baseline's quality, and what is trained next."""

import math
from dataclasses import replace

import pytest

from autotune.core.trial import Repeat
from autotune.judging import planning, replanning
from autotune.judging.history import History

RATE = 0.35  # of the loss, for a factor e of length


@pytest.fixture
def trained(make_trial, scheduled):
    """A whole training of the baseline's settings but for those given, and its final loss.

    Its evaluation before the first step had a loss of 4.2.
    """

    def make(number, loss, length=24_000, speed=300.0, **rest):
        settings = {
            **scheduled.baseline_config,
            **{k: rest.pop(k) for k in list(rest) if k in scheduled.knobs},
        }
        trial = make_trial(number, speed, curve=[-loss], half_width=1.0, **settings, **rest)
        shown = replace(trial.measurement, start=-4.2, quality_samples=length)
        config = {name: value for name, value in trial.config.items() if name in scheduled.knobs}
        return replace(trial, config={**config, "length": length}, measurement=shown)

    return make


@pytest.fixture
def piloted(trained):
    """The baseline at its length, and at half of it."""
    return [trained(0, 1.90), trained(1, 1.90 + RATE * math.log(2), length=12_000)]


def test_the_rate_is_what_a_longer_training_buys_over_all_settings(piloted, trained, scheduled):
    assert History(piloted[:1], scheduled).needs.rate is None
    assert History(piloted, scheduled).needs.rate == pytest.approx(RATE)
    faster = [trained(2, 1.80, learning_rate=2e-3), trained(3, 1.87, 16_000, learning_rate=2e-3)]
    rate = History([*piloted, *faster], scheduled).needs.rate
    assert 0.2 < rate < RATE, "these gain less by their length"


def test_settings_that_are_better_need_fewer_samples_and_those_that_missed_it_more(
    piloted, trained, scheduled
):
    better = trained(2, 1.80, learning_rate=2e-3)
    missed = trained(3, 2.00, length=12_000, learning_rate=4e-3)
    needs = History([*piloted, better, missed], scheduled).needs
    assert needs.samples(better) == pytest.approx(24_000 * math.exp(-0.10 / RATE))
    assert needs.samples(missed) == pytest.approx(12_000 * math.exp(0.10 / RATE))
    assert needs.samples(piloted[0]) == pytest.approx(24_000)


def test_of_several_lengths_the_one_that_comes_closest_counts_with_all_its_seeds(piloted, trained, scheduled):
    first = trained(2, 1.70, learning_rate=4e-3)
    again = [trained(3, 1.88, 14_000, learning_rate=4e-3), trained(4, 1.90, 14_000, learning_rate=4e-3)]
    again[1] = replace(again[1], repeat=Repeat(3, 1, (3,)))
    needs = History([*piloted, first, *again], scheduled).needs
    assert (
        needs.samples(first)
        == needs.samples(again[0])
        == pytest.approx(14_000 * math.exp(-0.01 / needs.rate))
    )


def test_a_longer_training_is_never_taken_to_buy_nothing(piloted, trained, scheduled):
    flat = [piloted[0], trained(1, 1.90, length=12_000)]
    slack = 0.01 * (4.2 - 1.9)
    assert History(flat, scheduled).needs.rate == pytest.approx(slack / math.log(2))


def test_what_settings_are_worth_is_trainings_a_second(piloted, trained, scheduled):
    better = trained(2, 1.80, learning_rate=2e-3)
    history = History([*piloted, better], scheduled)
    assert history.worth(piloted[0]) == pytest.approx(299 / 24_000, rel=0.01)
    assert history.worth(better) / history.worth(piloted[0]) == pytest.approx(math.exp(0.10 / RATE))
    assert replanning.best(history) is better


@pytest.mark.parametrize("changes", [{"select": "same-training"}, {"target": 2.0}, {"keep": 0.0}])
def test_where_no_final_quality_is_compared_nothing_is_planned(scheduled, piloted, changes):
    goal = scheduled.objective.model_copy(update=changes)
    space = scheduled.model_copy(update={"objective": goal})
    assert not planning.is_wanted(space)
    history = History(piloted, space)
    assert history.needs.rate is None
    assert replanning.planned(space.baseline_config, history, 1.0) == space.baseline_config
    assert replanning.next_config(history) is replanning.pilot(history) is None


def test_the_pilot_is_the_baseline_at_half_of_its_length(piloted, scheduled):
    half = replanning.pilot(History(piloted[:1], scheduled))
    assert half == {**scheduled.baseline_config, "length": 12_000}
    assert replanning.pilot(History(piloted, scheduled)) is None, "it has run"


def test_new_settings_are_as_long_as_the_best_so_far_need(piloted, trained, scheduled):
    config = {**scheduled.baseline_config, "micro_batch_size": 24}
    assert replanning.planned(config, History(piloted, scheduled), 1.0)["length"] == 24_000
    assert replanning.planned(config, History(piloted, scheduled), 0.5)["length"] == 12_000
    better = [*piloted, trained(2, 1.80, learning_rate=2e-3)]
    assert replanning.planned(config, History(better, scheduled), 1.0)["length"] == 18_048


def test_the_best_is_trained_again_at_the_length_that_it_needs(piloted, trained, scheduled):
    better = trained(2, 1.80, learning_rate=2e-3)
    again = replanning.next_config(History([*piloted, better], scheduled))
    assert again == {**better.config, "length": 18_048}
    assert replanning.next_config(History(piloted, scheduled)) is None, "nothing is better"
    ended = trained(3, 1.901, 18_048, learning_rate=2e-3)
    assert replanning.next_config(History([*piloted, better, ended], scheduled)) is None
    missed = trained(3, 1.96, 18_048, learning_rate=2e-3)
    longer = replanning.next_config(History([*piloted, better, missed], scheduled))
    assert longer["length"] > 20_000, "it just missed the quality"
