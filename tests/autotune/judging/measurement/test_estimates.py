"""One estimate for each configuration, from its race or else from all comparable runs."""

import math
from dataclasses import replace

import pytest

from autotune.core.trial import Repeat
from autotune.judging.decisions.history import History
from autotune.judging.measurement import estimates
from autotune.judging.measurement.estimates import Figure
from tests.autotune.conftest import slices_of


@pytest.fixture
def held(space):
    return lambda *trials: History(trials, space)


def timed(make_trial, number, speed, **rest):
    return make_trial(number, speed, 0.2, half_width=0.1, **rest)


def again(make_trial, number, of, speed, **rest):
    return timed(make_trial, number, speed, repeat=Repeat(of, number), **rest)


def value(figure):
    return None if figure is None else figure.value


def test_all_runs_of_equal_settings_are_pooled(make_trial, held):
    baseline, fast = timed(make_trial, 0, 10), timed(make_trial, 1, 60, x=1)
    history = held(baseline, fast, again(make_trial, 2, 0, 20), again(make_trial, 3, 1, 30, x=1))
    assert [value(history.throughput(t)) for t in history.trials] == pytest.approx([15, 45, 15, 45])
    assert [value(history.factor(t)) for t in history.trials] == pytest.approx([1, 3, 1, 3])


def test_a_raced_trial_has_the_factor_of_its_last_race(make_trial, held):
    baseline, fast = timed(make_trial, 0, 10), timed(make_trial, 1, 100, x=1)
    race = make_trial(2, race=(0, 1), slices=slices_of({1: 3.0}, apart=0.01))
    history = held(baseline, fast, race, again(make_trial, 3, 0, 20))
    found = history.factor(fast)
    assert found.value == pytest.approx(3.0, 1e-3)
    assert (found.low, found.high) == pytest.approx((2.97, 3.03), 1e-2)
    assert history.throughput(fast).value == found.value * history.throughput(baseline).value
    later = make_trial(4, race=(0, 1), slices=slices_of({1: 2.0}))
    assert value(history.after(later).factor(fast)) == pytest.approx(2.0), "the last race counts"
    assert (history.throughput(race), history.factor(race)) == (None, None)


def test_equally_fast_settings_share_the_factor_of_a_race(make_trial, held):
    baseline, fast = timed(make_trial, 0, 10), timed(make_trial, 1, 100, x=1, learning_rate=1.0)
    equal = timed(make_trial, 2, 50, x=1, learning_rate=2.0)
    race = make_trial(3, race=(0, 1), slices=slices_of({1: 3.0}))
    history = held(baseline, fast, equal, race)
    assert history.factor(equal) == history.factor(fast)
    assert value(history.factor(timed(make_trial, 4, 11, learning_rate=2.0))) == 1.0, "as the baseline"


def test_shared_trials_are_compared_with_a_shared_baseline(make_trial, held):
    trials = [
        timed(make_trial, 0, 8, shared=True),
        timed(make_trial, 1, 24, x=1, shared=True),
        again(make_trial, 2, 0, 10),
        timed(make_trial, 3, 15, x=2),
    ]
    history = held(*trials)
    assert [value(history.factor(t)) for t in trials] == pytest.approx([1, 3, 1, 1.5])
    assert [value(history.throughput(t)) for t in trials] == pytest.approx([10, 30, 10, 15])


def test_unmeasured_or_foreign_trials_have_no_factor(make_trial, held):
    baseline, other = timed(make_trial, 0, 10), timed(make_trial, 1, 30, x=1)
    elsewhere = replace(other, measurement=replace(other.measurement, device="another"))
    unmeasured = make_trial(2, failure="oom")
    history = held(baseline, elsewhere, unmeasured)
    assert [history.factor(t) for t in (elsewhere, unmeasured)] == [None, None]
    assert [value(history.throughput(t)) for t in (elsewhere, unmeasured)] == [30, None]
    assert history.factor(other) == held(baseline, other).factor(other)
    alone = held(other)
    assert (alone.factor(other), value(alone.throughput(other))) == (None, 30), "there is no baseline yet"


def test_the_interval_includes_the_drift_between_equal_runs(make_trial, held):
    baseline, fast = timed(make_trial, 0, 90), timed(make_trial, 1, 300, x=1)
    assert held(baseline, fast).throughput(fast) == Figure(300, 299.9, 300.1)
    history = held(baseline, fast, again(make_trial, 2, 0, 110))
    drift = 2 * math.sqrt(0.02)
    assert history.throughput(fast).part == pytest.approx(drift)
    assert history.throughput(baseline).part == pytest.approx(drift / math.sqrt(2))


def test_quality_is_the_mean_of_the_seeds_or_of_all_baseline_runs(make_trial, held):
    chosen = make_trial(1, 30, curve=[0.3], x=1)
    seeds = [make_trial(n, 30, curve=[q], x=1, repeat=Repeat(1, n)) for n, q in ((3, 0.2), (4, 0.22))]
    baseline = [make_trial(0, 10, curve=[0.2]), make_trial(2, 10, curve=[0.24], repeat=Repeat(0, 0))]
    history = held(*baseline, chosen, *seeds)
    qualities = [value(history.quality(t)) for t in (chosen, seeds[0], *baseline)]
    assert qualities == pytest.approx([0.21, 0.21, 0.22, 0.22])
    assert held(baseline[0], chosen).quality(chosen) == Figure(0.3)


def test_memory_is_the_highest_peak_of_any_run(make_trial, held):
    trial = timed(make_trial, 1, 30, x=1, peak=100, limit=200)
    repeat = again(make_trial, 2, 1, 30, x=1, peak=150, limit=200)
    rising = replace(trial, measurement=replace(trial.measurement, memory_is_rising=True))
    found = held(timed(make_trial, 0, 10), rising, repeat).memory(rising)
    assert (found.peak_memory_bytes, found.memory_is_rising) == (150, True)


def test_products_and_ratios_combine_both_intervals():
    one, other = Figure(10.0, 9.0, 11.0), Figure(2.0, 1.9, 2.1)
    apart = math.exp(math.hypot(0.1, 0.05))
    assert estimates.multiply(one, other) == Figure(20.0, 20.0 / apart, 20.0 * apart)
    assert estimates.divide(one, other) == Figure(5.0, 5.0 / apart, 5.0 * apart)
    assert estimates.divide(one, Figure(2.0)) == Figure(5.0)
    assert estimates.bounded(1.0, 0.5, math.inf) == Figure(1.0)


def test_identical_values_have_no_interval():
    assert estimates.mean([]) is None
    assert estimates.mean([0.2, 0.2]) == Figure(0.2)
    diverged = estimates.mean([0.1, math.nan])
    assert (math.isnan(diverged.value), diverged.low, diverged.high) == (True, None, None)
    found = estimates.mean([0.1, 0.3])
    assert (found.value, found.high - found.value) == pytest.approx((0.2, 12.7062 * 0.1), 1e-4)
