"""Throughput pooled over all trials of the same settings."""

import random
from dataclasses import replace

import pytest

from autotune.core.measurement import Throughput
from autotune.judging.measurement.speeds import Speeds, pooled


def changed(trial, **changes):
    return replace(trial, measurement=replace(trial.measurement, **changes))


def measured(trial, speed, half_width, seconds, steps=10):
    return changed(trial, throughput=Throughput(speed, half_width, steps, seconds))


def test_equal_settings_are_pooled_weighted_by_time(make_trial):
    long, short = measured(make_trial(1), 10.0, 0.1, 30.0), measured(make_trial(2), 14.0, 0.1, 10.0)
    figure = pooled([long, short])
    assert figure.samples_per_s == pytest.approx(11.0)
    assert (figure.steps, figure.seconds) == (20, 40.0)
    assert figure.half_width_per_s == pytest.approx(2.0), "half of their distance"


def test_agreeing_figures_narrow_the_interval(make_trial):
    same = [measured(make_trial(n), 10.0, 0.4, 5.0) for n in range(4)]
    assert pooled(same).half_width_per_s == pytest.approx(0.2)


@pytest.mark.parametrize("seed", range(20))
def test_a_pooled_figure_lies_within_its_range(make_trial, seed):
    rng = random.Random(seed)
    trials = [
        measured(make_trial(n), rng.uniform(1, 100), rng.uniform(0, 5), rng.uniform(0.1, 60))
        for n in range(rng.randint(1, 6))
    ]
    rates, figure = [t.samples_per_s for t in trials], pooled(trials)
    assert min(rates) * 0.999 <= figure.samples_per_s <= max(rates) * 1.001
    assert figure.half_width_per_s >= (max(rates) - min(rates)) / 2


def test_learning_rate_and_seed_do_not_separate_groups(make_trial):
    first = make_trial(1, 10, half_width=0.1, learning_rate=1e-3, seed=1)
    second = make_trial(2, 12, half_width=0.1, learning_rate=2e-3, seed=2)
    assert Speeds([first, second]).pooled_throughput(first).samples_per_s == pytest.approx(11)
    other = make_trial(3, 50, half_width=0.1, micro_batch_size=32)
    assert Speeds([first, other]).pooled_throughput(first).samples_per_s == 10


def test_one_is_not_true(make_trial):
    numbers = [make_trial(n, 10 * n, half_width=0.1, compile=value) for n, value in ((1, 1), (2, True))]
    assert Speeds(numbers).pooled_throughput(numbers[0]).samples_per_s == 10


@pytest.mark.parametrize("changes", [{"shared": True}, {"device": "another"}, {"revision": "newer"}])
def test_other_conditions_are_never_pooled(make_trial, changes):
    alone = make_trial(1, 10, half_width=0.1)
    other = changed(make_trial(2, 20, half_width=0.1), **changes)
    speeds = Speeds([alone, other])
    assert speeds.pooled_throughput(alone).samples_per_s == 10
    assert speeds.pooled_throughput(other).samples_per_s == 20
    assert speeds.drift == 0
    assert speeds.disagreements() == []


def test_a_figure_of_too_few_steps_is_not_pooled(make_trial):
    sure, unsure = make_trial(1, 10, half_width=0.1), make_trial(2, 20)
    speeds = Speeds([sure, unsure])
    assert speeds.pooled_throughput(sure).samples_per_s == 10
    assert speeds.pooled_throughput(make_trial(3, 30, micro_batch_size=2)).samples_per_s == 30
    assert speeds.pooled_throughput(make_trial(4, micro_batch_size=2)) is None


def test_a_configuration_has_the_throughput_of_equal_settings(make_trial):
    ran = make_trial(1, 10, half_width=0.1, learning_rate=1e-3)
    speeds = Speeds([ran])
    assert speeds.throughput_like({**ran.config, "learning_rate": 5e-3}, like=ran).samples_per_s == 10
    assert speeds.throughput_like({**ran.config, "precision": "bf16"}, like=ran) is None
    assert speeds.throughput_like(ran.config, like=changed(ran, shared=True)) is None


def test_the_drift_is_the_scatter_between_equal_settings(make_trial):
    assert Speeds([]).drift == 0
    assert Speeds([make_trial(1, 10, half_width=0.1)]).drift == 0
    pair = [make_trial(n, speed, half_width=0.1) for n, speed in enumerate((90, 110))]
    assert Speeds(pair).drift == pytest.approx(0.02**0.5)
    others = [make_trial(n, 50, half_width=0.1, micro_batch_size=8) for n in (2, 3)]
    assert Speeds([*pair, *others]).drift == pytest.approx(0.01**0.5)


def test_disagreements_over_2_percent_are_sorted(make_trial):
    close = [make_trial(n, speed, half_width=0.1, micro_batch_size=4) for n, speed in ((0, 100), (1, 101.9))]
    apart = [make_trial(n, speed, half_width=0.1, micro_batch_size=8) for n, speed in ((2, 103), (3, 100))]
    far = [make_trial(n, speed, half_width=0.1) for n, speed in ((4, 10), (5, 12), (6, 11))]
    unsure = [make_trial(n, speed, half_width=3, micro_batch_size=32) for n, speed in ((7, 100), (8, 104))]
    found = Speeds([*close, *apart, *far, *unsure]).disagreements()
    assert [(slow.number, fast.number) for slow, fast, _ in found] == [(4, 5), (3, 2)]
    assert [share for _, _, share in found] == [pytest.approx(0.2), pytest.approx(0.03)]
