"""Trainings at another length: the baseline at half of it, the best settings at the length that they need."""

import math
from dataclasses import replace

import pytest

from autotune.core.measurement import Evaluation
from autotune.judging.decisions import replanning
from autotune.judging.decisions.history import History
from autotune.space.knobs import PlannedLength

WHOLE, QUALITY = 20_000, 0.3
HIGHER, OTHERWISE = {"learning_rate": 2e-4}, {"precision": "bf16"}


@pytest.fixture
def trained(make_trial, planned):
    """Makes a trial of so many samples with this quality, and the baseline's other settings."""

    def make(number, samples, quality, speed=10, **rest):
        config = {**planned.baseline_config, "length": samples, **rest}
        return make_trial(number, speed, **{"curve": [quality], "half_width": 0.01, **config})

    return make


@pytest.fixture
def pair(trained):
    """The baseline at full and at half its length: doubling it gains 0.04."""
    return [trained(0, WHOLE, QUALITY), trained(1, WHOLE // 2, QUALITY - 0.04)]


@pytest.fixture
def after(planned):
    return lambda *trials: History(trials, planned)


def test_the_pilot_is_the_baseline_at_half_its_length_once(trained, pair, after, planned):
    assert replanning.pilot(after()) is None, "before the baseline"
    assert replanning.pilot(after(trained(0, WHOLE, QUALITY, failure="oom"))) is None
    assert replanning.pilot(after(pair[0])) == {**planned.baseline_config, "length": WHOLE // 2}
    assert replanning.pilot(after(*pair)) is None
    failed = trained(1, WHOLE // 2, 0.1, failure="error")
    assert replanning.pilot(after(pair[0], failed)) is None, "it is tried only once"


def test_a_training_of_one_epoch_has_no_pilot(pair, planned):
    one_epoch = {
        "knobs": {**planned.knobs, "length": PlannedLength(epochs=("max_iters",))},
        "baseline": {**planned.baseline, "max_iters": 1},
        "training": planned.training.model_copy(update={"samples_per_epoch": WHOLE}),
    }
    assert replanning.pilot(History(pair[:1], planned)) is not None
    assert replanning.pilot(History(pair[:1], planned.model_copy(update=one_epoch))) is None, "whole epochs"


def test_without_planned_lengths_there_is_no_pilot(pair, space, planned):
    assert replanning.pilot(History(pair[:1], space)) is None
    assert replanning.pilot(History(pair[:1], planned.revised(budget={"trials": 1}))) is None
    assert replanning.next_config(History(pair, space)) is None


def test_a_new_configuration_gets_the_length_that_the_best_needs(trained, pair, after, planned):
    config = {**planned.baseline_config, "micro_batch_size": 64}
    assert replanning.planned(config, after(*pair), 1.0)["length"] == 19_968, "whole steps of 64"
    assert replanning.planned(config, after(*pair), 0.5)["length"] == 9_984
    better = trained(2, WHOLE, QUALITY + 0.04, **HIGHER)
    assert replanning.planned(config, after(*pair, better), 1.0)["length"] == 9_984
    assert replanning.planned(config, after(*pair, better), 0.1)["length"] == 1_984, "at least a tenth"


def test_the_best_settings_finish_first_at_the_length_that_they_need(trained, pair, after):
    twice_as_fast = trained(2, WHOLE, QUALITY - 0.02, speed=20, **OTHERWISE)
    twice_as_good = trained(3, WHOLE, QUALITY + 0.04, **HIGHER)
    assert replanning.best(after(*pair)).number in {0, 1}, "the same settings"
    assert replanning.best(after(*pair, twice_as_fast)).number == 2, "1.4 times the samples, twice the speed"
    assert replanning.best(after(*pair, twice_as_fast, twice_as_good)).number == 3
    memory = trained(4, WHOLE, QUALITY + 0.04, speed=90, peak=99, limit=100, num_workers=0)
    assert replanning.best(after(*pair, memory)).number in {0, 1}, "another length does not help"


def test_clearly_better_settings_are_trained_again_shorter(trained, pair, after):
    better = trained(2, WHOLE, QUALITY + 0.04, **HIGHER)
    assert replanning.next_config(after(*pair, better)) == {**better.config, "length": 10_000}
    again = trained(3, 10_000, QUALITY, **HIGHER)
    assert replanning.next_config(after(*pair, better, again)) is None, "the length is right"


def test_settings_that_just_miss_are_trained_again_longer(trained, pair, after):
    faster = trained(2, WHOLE, QUALITY - 0.02, speed=30, **OTHERWISE)
    longer = replanning.next_config(after(*pair, faster))
    assert longer["precision"] == "bf16"
    assert longer["length"] == pytest.approx(WHOLE * 2**0.5, rel=0.001)


def test_settings_that_train_the_same_need_the_baselines_length(trained, pair, after):
    lucky = trained(2, WHOLE, QUALITY + 0.1, speed=20, num_workers=4)
    history = after(*pair, lucky)
    assert history.needed_samples(lucky) == WHOLE
    assert replanning.next_config(history) is None
    assert replanning.best(history).number == 2


def test_no_training_is_planned_longer_than_the_baselines(trained, pair, after, planned):
    faster = trained(2, WHOLE, QUALITY - 0.02, speed=30, **OTHERWISE)
    assert replanning.planned(faster.config, after(*pair, faster), 1.0)["length"] == WHOLE


def test_settings_without_a_gain_are_not_trained_again(trained, pair, after):
    barely = trained(2, WHOLE, QUALITY - 0.04, speed=20.5, **OTHERWISE)
    assert replanning.best(after(*pair, barely)).number == 2
    assert replanning.next_config(after(*pair, barely)) is None, "2.05 times the speed, twice the samples"
    assert replanning.next_config(after(pair[0], barely)) is None, "without a rate nothing is known"


def test_the_same_settings_are_trained_at_four_lengths_at_most(trained, pair, after):
    """Each of them predicts that the settings need 16000 samples."""
    rate = 0.04 / math.log(2)
    tried = [
        trained(n, samples, QUALITY + rate * math.log(samples / 16_000), speed=20, **OTHERWISE)
        for n, samples in enumerate((5_008, 7_008, 9_008, 19_008), start=2)
    ]
    assert replanning.next_config(after(*pair, *tried[:3]))["length"] == pytest.approx(16_000, rel=0.01)
    assert replanning.next_config(after(*pair, *tried)) is None


def test_a_training_with_its_own_cadence_ends_at_an_evaluation(make_trial, planned, after):
    """The baseline's 1250 steps of 16 samples are evaluated after steps 50, 350, 650, 950 and 1250."""
    curve = [Evaluation(16 * step, 1.0, 0.1) for step in (50, 350, 650, 950, 1250)]
    trial = make_trial(0, 10, half_width=0.01, **{**planned.baseline_config, "length": WHOLE})
    baseline, irregular = (
        replace(trial, measurement=replace(trial.measurement, curve=tuple(points)))
        for points in (curve, [curve[0], *curve[2:]])
    )

    def half(size, first):
        config = {**planned.baseline_config, "micro_batch_size": size}
        return replanning.planned(config, after(first), 0.5)["length"]

    steps = {size: half(size, baseline) / size for size in (16, 32, 64)}
    assert steps == {16: 651, 32: 351, 64: 51}  # one more, for a script that evaluates before a step
    assert half(16, irregular) == WHOLE // 2
