"""Curves of quality over samples, compared after the same number of samples."""

import math
from dataclasses import replace

import pytest

from autotune.core.measurement import Evaluation, Measurement
from autotune.judging.measurement import curves
from tests.autotune.conftest import curve_of

REFERENCE = curve_of([0.1, 0.2, 0.3, 0.4])


def test_quality_is_interpolated_between_evaluations():
    assert curves.quality_at(REFERENCE, 250) == pytest.approx(0.25)
    assert curves.quality_at(REFERENCE, 300) == pytest.approx(0.3)


@pytest.mark.parametrize("samples", [99, 401])
def test_quality_outside_of_the_curve_is_unknown(samples):
    assert curves.quality_at(REFERENCE, samples) is None
    assert curves.quality_at((), samples) is None


def test_a_single_evaluation_is_known_at_its_own_samples():
    assert curves.quality_at(REFERENCE[:1], 100) == 0.1
    assert curves.quality_at(REFERENCE[:1], 150) is None


def out_of_reach(curve, keep=0.95, noise=0.02, samples=400):
    return curves.is_out_of_reach(curve, REFERENCE, keep, noise, samples)


def test_two_evaluations_in_a_row_must_be_clearly_below():
    assert out_of_reach(curve_of([0.05, 0.10]))
    assert not out_of_reach(curve_of([0.05]))
    assert not out_of_reach(curve_of([0.10, 0.10])), "the last one alone"
    assert not out_of_reach(curve_of([0.05, 0.10, 0.30])), "it has caught up"


def test_a_curve_that_catches_up_is_within_reach():
    assert not out_of_reach(curve_of([0.05, 0.14])), "at this pace it passes the baseline's at the end"
    assert out_of_reach(curve_of([0.05, 0.14]), samples=200), "but not if this is the end"
    assert out_of_reach(curve_of([0.05, 0.12])), "nor at half that pace"


def test_clearly_below_is_two_standard_deviations():
    just_above, just_below = curve_of([0.0911, 0.1821]), curve_of([0.0909, 0.1818])
    assert not out_of_reach(just_above)
    assert out_of_reach(just_below)


def test_while_the_noise_is_unknown_only_what_is_hopeless_is_out_of_reach():
    assert out_of_reach(curve_of([0.05, 0.10]), noise=None)
    assert not out_of_reach(curve_of([0.06, 0.12]), noise=None)


def test_other_samples_are_compared_by_interpolation():
    late = (Evaluation(150, 1.0, 0.12), Evaluation(250, 2.0, 0.20))
    assert out_of_reach(late)
    assert not out_of_reach(late, keep=0.80)


def test_beyond_the_reference_nothing_is_compared():
    long = (*curve_of([0.0, 0.0, 0.0, 0.0]), Evaluation(500, 50.0, 0.0))
    assert not out_of_reach(long)


def test_the_mean_has_the_points_that_every_curve_has():
    mean = curves.mean_curve([curve_of([0.1, 0.2, 0.3]), curve_of([0.3, 0.4])])
    assert [(p.samples, pytest.approx(p.quality)) for p in mean] == [(100, 0.2), (200, 0.3)]
    assert curves.mean_curve([]) == ()
    assert curves.mean_curve([REFERENCE]) == REFERENCE


def test_the_noise_is_the_relative_deviation_between_runs():
    assert curves.relative_noise([curve_of([0.9]), curve_of([1.1])]) == pytest.approx(0.02**0.5)
    assert curves.relative_noise([curve_of([9, 0.9]), curve_of([11, 1.1])]) == pytest.approx(0.02**0.5)


def test_the_noise_has_a_lower_bound():
    assert curves.relative_noise([REFERENCE, REFERENCE]) == 0.02


def test_a_single_run_has_no_known_noise():
    assert curves.relative_noise([]) is None
    assert curves.relative_noise([REFERENCE]) is None
    assert curves.relative_noise([curve_of([0.1]), ()]) is None
    assert curves.relative_noise([curve_of([0.0]), curve_of([0.0])]) is None


def test_shares_of_a_negative_quality_use_its_magnitude():
    assert curves.least(0.95, 0.2) == 0.95 * 0.2
    assert curves.least(0.95, -2.0) == pytest.approx(-2.1)
    assert curves.least(0.95, 0.0) == 0.0
    assert curves.share(0.19, 0.2) == pytest.approx(0.95)
    assert curves.share(-2.1, -2.0) == pytest.approx(0.95)
    assert curves.share(-1.9, -2.0) > 1
    assert curves.share(-0.1, 0.2) < 0
    assert math.isfinite(curves.share(1e30, -1e-30))


def test_the_end_quality_is_the_mean_of_the_last_quarter():
    long = Measurement(quality=0.9, curve=curve_of([0.0] * 6 + [0.2, 0.4]))
    assert curves.end_quality(long) == pytest.approx(0.3)
    short = Measurement(quality=0.9, curve=curve_of([0.0, 0.0, 0.4]))
    assert curves.end_quality(short) == 0.4, "at least one"
    assert curves.end_quality(Measurement(quality=0.1)) == 0.1
    assert curves.end_quality(Measurement()) is None


@pytest.mark.parametrize(
    ("qualities", "samples"),
    [
        ([], None),
        ([0.9], None),
        ([0.1, 0.1, 0.1], None),
        ([0.1, 0.1, 0.2, 0.2], 400),
        ([0.2, 0.2, 0.2], 200),
        ([0.1, 0.3, 0.3], 200),
        ([0.1, 0.25, 0.1, 0.1], None),
        ([0.1, 0.1, 0.4, 0.1], 100 * 8 / 3),
    ],
)
def test_a_target_is_reached_by_the_mean_of_two_evaluations(qualities, samples):
    assert curves.samples_to_reach(curve_of(qualities), 0.2) == (samples and pytest.approx(samples))


def test_a_collapsed_model_reaches_nothing():
    points = curve_of([0.1, 0.3, 0.3, 0.3, 0.3])
    assert curves.samples_to_reach(points, 0.3) == pytest.approx(300)
    dip = [replace(p, collapsed=p.samples == 300) for p in points]
    assert curves.samples_to_reach(dip, 0.3) == pytest.approx(500)
    assert curves.samples_to_reach([replace(p, collapsed=True) for p in points], 0.2) is None


def test_no_target_is_reached_before_the_first_evaluation():
    assert curves.samples_to_reach(curve_of([0.5, 0.5]), 0.2) >= 100
    assert curves.samples_to_reach(curve_of([0.5, 0.6]), 0.2) >= 100


def test_higher_targets_are_reached_later():
    rising = curve_of([0.05, 0.11, 0.1, 0.18, 0.2, 0.26, 0.3])
    found = [curves.samples_to_reach(rising, target / 100) for target in range(9, 28)]
    assert found == sorted(found)
    assert len(set(found)) == len(found)


@pytest.mark.parametrize(
    ("qualities", "fields", "learnt"),
    [
        ([0.2, 0.2, 0.2, 0.2], {"chance": 0.1}, True),
        ([0.2, 0.2, 0.2], {"chance": 0.1}, False),
        ([0.2, 0.2, 0.2, 0.11], {"chance": 0.1}, False),
        ([0.2, 0.2, 0.11, 0.2], {"chance": 0.1}, False),
        ([0.0, 0.0, 0.116, 0.116], {"chance": 0.1}, True),
        ([0.2, 0.2, 0.2, 0.2], {"chance": 0.1, "collapsed": True}, False),
        ([0.2, 0.2, 0.2, 0.2], {}, True),
        ([0.0, 0.0, 0.1, 0.1], {"chance": 0.0}, True),
        ([0.0, 0.0, 0.0, 0.0], {"chance": 0.0}, False),
        ([-1.0, -1.0, -1.6, -1.6], {"chance": -2.0}, True),
        ([-1.0, -1.0, -1.9, -1.9], {"chance": -2.0}, False),
    ],
)
def test_a_model_has_learnt_if_two_evaluations_in_a_row_are_clearly_above_chance(qualities, fields, learnt):
    assert curves.has_learnt(curve_of(qualities, **fields), fewest=4) is learnt


def test_learning_takes_at_least_two_evaluations_to_show():
    assert not curves.has_learnt(curve_of([0.2], chance=0.1), fewest=1)
    assert curves.has_learnt(curve_of([0.2, 0.2], chance=0.1), fewest=1)


def test_curves_without_common_samples_are_aligned_by_order():
    """Batches differ in tokens."""
    one = [Evaluation(1000, 1.0, 0.10), Evaluation(2010, 2.0, 0.22), Evaluation(3000, 3.0, 0.30)]
    other = [Evaluation(1005, 1.2, 0.12), Evaluation(1990, 2.2, 0.18)]
    mean = curves.mean_curve([one, other])
    assert [(p.samples, p.seconds) for p in mean] == [(1002, 1.1), (2000, 2.1)]
    assert [p.quality for p in mean] == pytest.approx([0.11, 0.20])
    assert curves.relative_noise([one, other]) == pytest.approx(math.sqrt((2 / 121 + 2 / 100) / 2))
    some = [*one, Evaluation(4000, 4.0, 0.5)]
    assert curves.mean_curve([one, some]) == tuple(one), "points at equal samples are preferred"


@pytest.mark.parametrize(
    ("reference", "start", "gain"),
    [
        (0.4, None, 0.4),
        (0.4, 0.1, 0.3),
        (-2.0, -5.0, 3.0),
        (-2.0, None, 2.0),
        (0.4, 0.5, 0.4),  # nothing was gained
    ],
)
def test_shares_are_relative_to_the_gain_since_the_start(reference, start, gain):
    assert curves.gain(reference, start) == pytest.approx(gain)
    for share in (0.0, 0.5, 0.95, 1.2):
        assert curves.share(curves.least(share, reference, start), reference, start) == pytest.approx(share)
    assert curves.least(1.0, reference, start) == reference


def test_a_share_does_not_depend_on_the_origin_of_a_score():
    """Accuracies from 0.5 to 0.9 are those from 0 to 0.8, rescaled from a chance of 0.5."""
    assert curves.share(0.7, 0.9, 0.5) == pytest.approx(curves.share(0.4, 0.8, 0.0)) == pytest.approx(0.5)


def test_the_noise_is_a_share_of_the_gain():
    runs = [curve_of([0.8]), curve_of([1.0])]
    assert curves.relative_noise(runs) == pytest.approx(0.02**0.5 / 0.9)
    assert curves.relative_noise(runs, 0.5) == pytest.approx(0.02**0.5 / 0.4)


def test_scaling_a_curve_multiplies_its_samples_only():
    assert [p.samples for p in curves.scaled(curve_of([0.1, 0.2]), 2.0)] == [200, 400]
    assert [p.quality for p in curves.scaled(curve_of([0.1, 0.2]), 2.0)] == [0.1, 0.2]
