"""What the whole training takes: hours, the GPU's energy, money, each with its interval."""

from dataclasses import replace

import pytest

from autotune.core.trial import Repeat
from autotune.judging.accounts import costs
from autotune.judging.accounts.costs import Prices
from autotune.judging.decisions.history import History
from autotune.judging.measurement.estimates import Figure

TEN_HOURS = Figure(36_000.0, 32_400.0, 39_600.0)


@pytest.fixture
def run(make_trial):
    """The baseline, or a repeat of it, whose GPU had that power."""

    def make(number, power_w=None, **rest):
        telemetry = {} if power_w is None else {"gpu_power_w": power_w}
        beside = {"repeat": Repeat(0, number, (0,))} if number else {}
        return make_trial(number, 10.0, 0.2, telemetry=telemetry, **beside, **rest)

    return make


def cost(space, runs, prices=None, whole_s=TEN_HOURS):
    return costs.cost(runs[0], History(runs, space), whole_s, prices)


def test_the_time_has_its_interval_in_hours(space, run):
    assert cost(space, [run(0)]).hours == Figure(10.0, 9.0, 11.0)


def test_energy_is_the_mean_power_of_the_runs_over_the_time(space, run):
    found = cost(space, [run(0, 290.0), run(1, 300.0), run(2, 310.0)]).kwh
    assert found.value == pytest.approx(3.0)
    assert found.low < 2.7
    assert found.high > 3.3, "both the time and the power may be off"
    one = cost(space, [run(0, 300.0)]).kwh
    assert (one.value, one.low) == (pytest.approx(3.0), None), "a run says nothing of others"


def test_energy_is_never_that_of_a_shared_gpu_or_of_another_device(space, run):
    assert cost(space, [run(0, 300.0, shared=True)]).kwh is None
    other = run(1, 900.0)
    other = replace(other, measurement=replace(other.measurement, device="another"))
    assert cost(space, [run(0, 300.0), other]).kwh.value == pytest.approx(3.0)
    assert cost(space, [run(0)]).kwh is None


def test_money_is_that_of_the_hours_and_of_the_energy(space, run):
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


def test_what_has_a_price_and_is_not_known_makes_no_cheaper_training(space, run):
    assert cost(space, [run(0)], Prices(2.0, 0.5)).money is None
    assert cost(space, [run(0)], Prices(per_hour=2.0)).money.value == 20.0


def test_a_time_without_an_interval_gives_none(space, run):
    found = cost(space, [run(0, 300.0)], Prices(2.0, 0.5), Figure(3600.0))
    assert found.hours == Figure(1.0)
    assert found.money == Figure(pytest.approx(2.15))
