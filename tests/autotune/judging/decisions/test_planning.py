"""Predicted lengths of trainings, from the gain of a longer one."""

import math
from dataclasses import replace

import pytest

from autotune.core.measurement import Evaluation
from autotune.core.trial import Repeat
from autotune.judging.decisions import objective, planning
from autotune.judging.decisions.history import History
from autotune.judging.decisions.planning import LengthNeeds

WHOLE, QUALITY, RATE = 20_000, 0.3, 0.04 / math.log(2)  # a doubling buys 0.04


@pytest.fixture
def trained(make_trial, planned):
    """Makes a trial of so many samples with this quality, and the baseline's other settings."""

    def make(number, samples, quality, **rest):
        return make_trial(number, 10, quality, **{**planned.baseline_config, "length": samples, **rest})

    return make


@pytest.fixture
def pair(trained):
    """The baseline at full and at half its length."""
    return [trained(0, WHOLE, QUALITY), trained(1, WHOLE // 2, QUALITY - 0.04)]


def with_curve(trial, qualities):
    """Returns `trial` with these qualities by samples."""
    curve = tuple(Evaluation(samples, samples / 10, quality) for samples, quality in qualities.items())
    return replace(trial, measurement=replace(trial.measurement, curve=curve))


@pytest.fixture
def needs(planned):
    return lambda trials, slack=0.0: LengthNeeds(trials, planned, QUALITY, slack)


def test_two_lengths_give_the_rate(pair, needs):
    assert needs(pair).rate == pytest.approx(RATE)
    assert needs(pair[:1]).rate is None


def test_close_lengths_give_no_rate(trained, pair, needs):
    assert needs([pair[0], trained(1, 19_000, 0.29)]).rate is None


@pytest.mark.parametrize(
    ("quality", "samples"),
    [(0.3, 20_000), (0.26, 40_000), (0.34, 10_000), (0.1, 640_000), (0.0, 1_280_000), (0.9, 5_000)],
)
def test_needed_samples_follow_the_rate_within_bounds(trained, pair, needs, quality, samples):
    other = trained(2, WHOLE, quality, learning_rate=2e-4)
    assert needs([*pair, other]).samples(other) == pytest.approx(samples)


def test_the_rate_is_pooled_over_all_settings(trained, pair, needs):
    better = [
        trained(2, WHOLE, 0.5, learning_rate=2e-4),
        trained(3, WHOLE // 2, 0.44, learning_rate=2e-4),
        trained(4, WHOLE, 0.1, learning_rate=4e-4),  # a single length does not count
    ]
    assert needs([*pair, *better]).rate == pytest.approx(0.05 / math.log(2))


def test_the_length_closest_to_the_quality_counts(trained, pair, needs):
    other = [
        trained(n, samples, quality, learning_rate=2e-4)
        for n, samples, quality in ((2, WHOLE, 0.5), (3, 5_000, 0.31), (4, 5_000, 0.29))
    ]
    assert needs([*pair, *other]).samples(other[0]) == pytest.approx(5_000)


def test_trainings_of_about_that_length_are_averaged(trained, pair, needs):
    """Seeds vary: one training alone would say 10,000 samples."""
    lucky = trained(2, WHOLE, QUALITY + 0.04, learning_rate=2e-4)
    again = trained(3, round(WHOLE / 1.2), QUALITY - 0.04, learning_rate=2e-4)
    expected = math.sqrt(WHOLE * WHOLE / 1.2)
    assert needs([*pair, lucky, again]).samples(lucky) == pytest.approx(expected, rel=1e-4)


def test_if_seeds_vary_the_aim_is_above_the_baselines_quality(trained, pair, planned):
    """So much above what has to be kept that a few seeds can show it: 2.5 standard deviations."""
    other = trained(2, WHOLE, QUALITY, learning_rate=2e-4)
    quiet, noisy = (
        [
            *pair,
            other,
            *(replace(trained(3 + n, WHOLE, q), repeat=Repeat(0, 1 + n)) for n, q in enumerate(qs)),
        ]
        for qs in ((QUALITY, QUALITY), (QUALITY - 0.02, QUALITY + 0.02))
    )
    assert History(quiet, planned).needed_samples(other) == pytest.approx(WHOLE)
    slack, rate = 0.05 * QUALITY, History(noisy, planned).needs.rate
    more = (2.5 * 0.02 - slack) / rate
    assert History(noisy, planned).needed_samples(other) == pytest.approx(WHOLE * math.exp(more))


def test_the_baseline_needs_the_length_that_it_has_whatever_is_aimed_at(trained, pair, planned):
    baseline = with_curve(pair[0], {10_000: 0.25, WHOLE: QUALITY})
    repeats = [
        replace(with_curve(baseline, {10_000: 0.25, WHOLE: quality}), number=2 + n, repeat=Repeat(0, n))
        for n, quality in enumerate((0.27, 0.33))
    ]
    history = History([baseline, pair[1], *repeats], planned)
    assert history.needs._quality > history.baseline_quality
    usual = history.surely_per_s(baseline) / WHOLE
    assert history.equal_trainings_per_s(baseline) == pytest.approx(usual)


def test_without_a_rate_settings_need_the_length_that_they_had(trained, pair, needs):
    other = trained(2, 10_000, 0.1, learning_rate=2e-4)
    assert needs([pair[0], other]).samples(other) == pytest.approx(10_000)


def test_the_rate_is_at_least_the_slack_per_doubling(trained, pair, needs):
    flat = [pair[0], trained(1, WHOLE // 2, QUALITY + 0.01)]
    assert needs(flat, slack=0.02).rate == pytest.approx(0.02 / math.log(2))


def test_only_completed_trainings_count(trained, pair, needs, make_trial):
    key = {"learning_rate": 2e-4}
    others = [
        trained(2, WHOLE, 0.1, stopped=True, **key),
        trained(3, WHOLE, 0.1, failure="oom", **key),
        trained(4, WHOLE, 0.1, race=(0, 1), **key),
        trained(5, WHOLE, 0.1, ablation_of=1, **key),
    ]
    known = needs([*pair, *others])
    assert [known.samples(trial) for trial in others] == [None] * 4
    assert known.rate == pytest.approx(RATE)


def test_a_stopped_training_seems_to_need_what_its_last_evaluation_lacks(trained, pair, planned):
    """Stopped halfway through a quarter of the length, as good as a quarter of the baseline, or worse."""
    baseline = with_curve(pair[0], {5000: 0.2, 10_000: 0.25, WHOLE: QUALITY})
    key = {"learning_rate": 2e-4, "stopped": True}
    as_good = with_curve(trained(2, WHOLE // 4, 0.0, **key), {WHOLE // 8: 0.25 - 2 * 0.04})
    worse = with_curve(as_good, {WHOLE // 8: 0.25 - 4 * 0.04})
    history = History([baseline, pair[1], as_good], planned)
    usual = history.equal_trainings_per_s(baseline)
    assert history.equal_trainings_per_s(as_good) == pytest.approx(usual)
    assert history.after(worse).equal_trainings_per_s(worse) == pytest.approx(usual / 4)


@pytest.mark.parametrize(
    ("goal", "wanted"),
    [({}, True), ({"target": 0.2}, False), ({"select": "same-training"}, False), ({"keep": 0.0}, False)],
)
def test_lengths_are_planned_if_final_qualities_are_compared(planned, space, goal, wanted):
    assert planning.is_wanted(planned.revised(objective=goal)) is wanted
    assert not planning.is_wanted(space.revised(objective=goal)), "there is no such knob"


def test_without_planned_lengths_there_is_no_rate(pair, space):
    needs = LengthNeeds(pair, space, QUALITY, 0.0)
    assert (needs.rate, needs.samples(pair[0])) == (None, None)


def at_target(trials, space, target=0.2):
    return History(trials, space.revised(objective={"target": target}))


def test_settings_that_compute_the_same_share_their_samples_to_target(make_trial, space):
    """A lucky seed must not decide between settings that compute the same."""
    lucky = make_trial(1, 10, curve=[0.3, 0.3], half_width=0.1, num_workers=0)
    fast = make_trial(2, 12, curve=[0.0, 0.1, 0.1, 0.3, 0.3], half_width=0.1, num_workers=2)
    history = at_target([make_trial(0, 5, curve=[0.3, 0.3], micro_batch_size=4), lucky, fast], space)
    of_lucky, of_fast = (objective.samples_to(t, 0.2) for t in (lucky, fast))
    assert of_lucky < of_fast
    assert history.to_target.samples(lucky) == history.to_target.samples(fast) == (of_lucky + of_fast) / 2
    assert [t.number for t in history.ranked] == [2, 1, 0]


def test_a_run_that_missed_the_target_counts_with_its_length(make_trial, space):
    reached = make_trial(1, 10, curve=[0.3, 0.3])
    missed = make_trial(2, 10, curve=[0.1, 0.1, 0.1], repeat=Repeat(1, 1))
    history = at_target([make_trial(0, 5, curve=[0.3, 0.3], micro_batch_size=4), reached, missed], space)
    assert history.to_target.samples(reached) == (objective.samples_to(reached, 0.2) + 300) / 2
    assert history.to_target.samples(missed) is None
    assert at_target([reached], space, target=None).to_target.samples(reached) is None


def test_seconds_to_target_use_the_pooled_speed(make_trial, space):
    slow = make_trial(1, 5, curve=[0.1, 0.3, 0.3], half_width=1.0)
    equal = make_trial(2, 15, half_width=1.0)
    history = at_target([slow, equal], space)
    assert objective.samples_to(slow, 0.2) == 200
    assert history.to_target.seconds(slow) == 20.0
