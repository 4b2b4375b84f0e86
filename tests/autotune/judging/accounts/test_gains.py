"""The gain as the promise has it: of throughput, or of the time to a quality."""

import pytest

from autotune.core.measurement import Evaluation
from autotune.judging.accounts import gains
from autotune.judging.decisions import claims
from autotune.judging.decisions.history import History
from autotune.space.sections import Objective
from tests.autotune.conftest import slices_of

TARGET = 0.2


@pytest.fixture
def sooner(space):
    return space.model_copy(update={"objective": Objective(select="same-quality", target=TARGET)})


def reaching(trial, samples):
    """`trial`, at the target after so many samples."""
    curve = (Evaluation(samples // 2, 1.0, TARGET), Evaluation(samples, 2.0, TARGET))
    return type(trial)(**{**vars(trial), "measurement": measured(trial, curve)})


def measured(trial, curve):
    return type(trial.measurement)(**{**vars(trial.measurement), "curve": curve, "quality": TARGET})


@pytest.fixture
def pair(make_trial):
    return [
        reaching(make_trial(0, 10, half_width=0.1), 10_000),
        reaching(make_trial(1, 20, half_width=0.1, x=1), 5_000),
    ]


def test_without_a_target_it_is_that_of_the_throughput(pair, space):
    history = History(pair, space)
    assert gains.gain(pair[1], history) == history.factor(pair[1])


def test_to_a_target_it_is_of_speed_and_samples(pair, sooner, make_trial):
    history = History(pair, sooner)
    assert gains.gain(pair[1], history).value == pytest.approx(2 * 2)
    assert gains.gain(pair[0], history).value == 1.0
    race = make_trial(2, race=(0, 1), slices=slices_of({1: 3.0}))
    raced = history.after(race)
    assert gains.gain(pair[1], raced).value == pytest.approx(3 * 2), "by the race, as soon as there is one"
    assert gains.gain(race, raced) is None


def test_who_was_never_there_has_none(pair, sooner, make_trial):
    history = History([*pair, make_trial(2, 30, 0.1, half_width=0.1, x=2)], sooner)
    assert gains.gain(history.of(2), history) is None


def test_what_is_confirmed_has_the_factor_of_its_claim_and_so_have_its_repeats(
    pair, sooner, make_trial, confirming
):
    seeds = confirming(pair, 1, 3.0)
    needs = {0: 10_000, 1: 6_000}
    trials = [*pair, *(reaching(t, needs[t.repeat.of]) if t.repeat else t for t in seeds)]
    history = History(trials, sooner)
    claim = claims.claim(1, history)
    assert claim.holds
    found = gains.gain(pair[1], history)
    assert found == claim.factor
    assert found.value == pytest.approx(history.factor(pair[1]).value * 10 / 6, 1e-3)
    repeats = {t.repeat.of: gains.gain(t, history).value for t in trials if t.repeat}
    assert repeats == {0: 1.0, 1: found.value}
