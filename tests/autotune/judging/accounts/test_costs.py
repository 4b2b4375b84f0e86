"""Costs of the whole training: hours, the GPU's energy, money, each with its interval."""

from dataclasses import replace

import pytest

from autotune.core.trial import Repeat
from autotune.judging.accounts import costs
from autotune.judging.accounts.costs import Prices
from autotune.judging.decisions import claims
from autotune.judging.decisions.history import History
from autotune.judging.measurement.estimates import Figure
from tests.autotune.conftest import reaching, slices_of

TEN_HOURS = Figure(36_000.0, 32_400.0, 39_600.0)


@pytest.fixture
def run(make_trial):
    """Makes the baseline, or a repeat of it, with this mean power of the GPU."""

    def make(number, power_w=None, **rest):
        telemetry = {} if power_w is None else {"gpu_power_w": power_w}
        repeat = Repeat(0, number) if number else None
        return make_trial(number, 10.0, 0.2, telemetry=telemetry, repeat=repeat, **rest)

    return make


def cost(space, runs, prices=None, whole_s=TEN_HOURS):
    return costs.cost(runs[0], History(runs, space), whole_s, prices)


def test_hours_keep_the_interval_of_the_time(space, run):
    assert cost(space, [run(0)]).hours == Figure(10.0, 9.0, 11.0)


def test_energy_is_mean_power_times_time(space, run):
    found = cost(space, [run(0, 290.0), run(1, 300.0), run(2, 310.0)]).kwh
    assert found.value == pytest.approx(3.0)
    assert found.low < 2.7
    assert found.high > 3.3, "both the time and the power may be off"
    one = cost(space, [run(0, 300.0)]).kwh
    assert (one.value, one.low) == (pytest.approx(3.0), None), "one run gives no interval"


def test_runs_on_a_shared_gpu_or_another_device_do_not_count(space, run):
    assert cost(space, [run(0, 300.0, shared=True)]).kwh is None
    other = run(1, 900.0)
    other = replace(other, measurement=replace(other.measurement, device="another"))
    assert cost(space, [run(0, 300.0), other]).kwh.value == pytest.approx(3.0)
    assert cost(space, [run(0)]).kwh is None


def test_money_adds_up_hours_and_energy(space, run):
    runs = [run(0, 300.0), run(1, 300.0)]
    assert cost(space, runs).money is None
    assert cost(space, runs, Prices(per_hour=2.0)).money == Figure(20.0, 18.0, 22.0)
    assert cost(space, runs, Prices(per_kwh=0.5)).money.value == pytest.approx(1.5)
    assert cost(space, runs, Prices(2.0, 0.5, "EUR")).money.value == pytest.approx(21.5)
    spread = [run(0, 290.0), run(1, 310.0)]
    both, energy = (cost(space, spread, p).money for p in (Prices(2.0, 0.5), Prices(per_kwh=0.5)))
    assert both.low == pytest.approx(18.0 + energy.low)
    assert both.high == pytest.approx(22.0 + energy.high)
    assert cost(space, runs, Prices(per_hour=0.0)).money.value == 0.0


def test_there_is_no_cost_if_a_priced_figure_is_unknown(space, run):
    assert cost(space, [run(0)], Prices(2.0, 0.5)).money is None
    assert cost(space, [run(0)], Prices(per_hour=2.0)).money.value == 20.0


def test_a_time_without_an_interval_gives_a_cost_without_one(space, run):
    found = cost(space, [run(0, 300.0)], Prices(2.0, 0.5), Figure(3600.0))
    assert found.hours == Figure(1.0)
    assert found.money == Figure(pytest.approx(2.15))


@pytest.fixture
def to_target(space):
    return space.revised(objective={"target": 0.2})


@pytest.fixture
def pair(make_trial):
    return [
        reaching(make_trial(0, 10, half_width=0.1), 10_000),
        reaching(make_trial(1, 20, half_width=0.1, x=1), 5_000),
    ]


def test_without_a_target_the_gain_is_the_factor_of_the_throughput(pair, space):
    history = History(pair, space)
    assert costs.gain(pair[1], history) == history.factor(pair[1])


def test_with_a_target_the_gain_is_speed_times_samples(pair, to_target, make_trial):
    history = History(pair, to_target)
    assert costs.gain(pair[1], history).value == pytest.approx(2 * 2)
    assert costs.gain(pair[0], history).value == 1.0
    race = make_trial(2, race=(0, 1), slices=slices_of({1: 3.0}))
    raced = history.after(race)
    assert costs.gain(pair[1], raced).value == pytest.approx(3 * 2), "a race replaces the trials' speeds"
    assert costs.gain(race, raced) is None


def test_a_trial_that_missed_the_target_has_no_gain(pair, to_target, make_trial):
    history = History([*pair, make_trial(2, 30, 0.1, half_width=0.1, x=2)], to_target)
    assert costs.gain(history.trial(2), history) is None


def test_a_confirmed_winner_and_its_repeats_have_the_claims_factor(pair, to_target, confirming):
    seeds = confirming(pair, 1, 3.0)
    needs = {0: 10_000, 1: 6_000}
    trials = [*pair, *(reaching(t, needs[t.repeat.of]) if t.repeat else t for t in seeds)]
    history = History(trials, to_target)
    claim = claims.claim(1, history)
    assert claim.holds
    found = costs.gain(pair[1], history)
    assert found == claim.factor
    assert found.value == pytest.approx(history.factor(pair[1]).value * 10 / 6, 1e-3)
    repeats = {t.repeat.of: costs.gain(t, history).value for t in trials if t.repeat}
    assert repeats == {0: 1.0, 1: found.value}
