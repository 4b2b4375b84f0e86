"""The test whether a quality is kept: its three answers, their evidence, and how often they are wrong."""

import math
import random
from collections import Counter

import pytest

from autotune.core.measurement import Evaluation, Measurement
from autotune.core.trial import Outcome, Status, Trial
from autotune.judging.decisions import quality
from autotune.judging.decisions.quality import Noise, QualityAnswer
from autotune.judging.measurement.estimates import Figure
from autotune.space.sections import Objective

KEEP = 0.95
SURE = Noise(0.004, 100)


@pytest.fixture
def runs(make_trial):
    """Makes runs that ended with these qualities."""
    return lambda *ends, **rest: [make_trial(n, 10, curve=[end], **rest) for n, end in enumerate(ends)]


def test_an_equal_quality_is_kept_and_a_much_worse_one_lost(runs):
    reference = runs(*[0.2] * 4)
    kept = quality.compare(runs(*[0.2] * 4), reference, KEEP, SURE)
    assert kept.answer is QualityAnswer.KEPT
    assert (kept.quality, kept.reference, kept.share.value) == pytest.approx((0.2, 0.2, 1.0))
    assert KEEP < kept.share.low < 1 < kept.share.high
    lost = quality.compare(runs(*[0.18] * 4), reference, KEEP, SURE)
    assert lost.answer is QualityAnswer.LOST
    assert lost.share.high < KEEP
    assert kept.runs_needed is lost.runs_needed is None


def test_an_undecided_test_says_how_many_runs_would_decide(runs):
    one = quality.compare(runs(0.196), runs(0.2), KEEP, SURE)
    assert one.answer is QualityAnswer.UNDECIDED
    assert one.share.low < KEEP < one.share.high
    enough, fewer = (
        quality.compare(runs(*[0.196] * count), runs(*[0.2] * count), KEEP, SURE).answer
        for count in (one.runs_needed, one.runs_needed - 1)
    )
    assert (enough, fewer) == (QualityAnswer.KEPT, QualityAnswer.UNDECIDED)


def test_at_the_very_border_no_number_of_runs_would_decide(runs):
    assert quality.compare(runs(0.19), runs(0.2), KEEP, SURE).runs_needed is None


def test_without_a_known_noise_nothing_is_decided(runs):
    found = quality.compare(runs(0.1), runs(0.2), KEEP, None)
    assert (found.answer, found.share.low, found.share.high) == (QualityAnswer.UNDECIDED, None, None)
    assert found.runs_needed is None


def test_without_a_run_or_with_a_quality_of_0_there_is_nothing_to_compare_with(runs):
    assert quality.compare([], runs(0.2), KEEP, SURE) is None
    assert quality.compare(runs(0.2), [], KEEP, SURE) is None
    assert quality.compare(runs(0.2), runs(0.0), KEEP, SURE) is None


def test_a_loss_a_tenth_higher_is_a_tenth_worse(runs):
    worse = quality.compare(runs(*[-2.2] * 4), runs(*[-2.0] * 4), KEEP, SURE)
    assert (worse.answer, worse.share.value) == (QualityAnswer.LOST, pytest.approx(0.9))
    better = quality.compare(runs(*[-1.8] * 4), runs(*[-2.0] * 4), KEEP, SURE)
    assert (better.answer, better.share.value) == (QualityAnswer.KEPT, pytest.approx(1.1))


def test_a_run_ends_with_the_mean_of_the_last_quarter_of_its_evaluations(make_trial):
    trial = make_trial(0, 10, curve=[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.2, 0.4])
    assert quality.qualities([trial, make_trial(1, 10)]) == [pytest.approx(0.3)]


def test_scatter_over_few_items_leaves_the_test_undecided(runs):
    even, odd = (0.1, 0.3) * 4, (0.3, 0.1) * 4
    same = quality.compare(runs(*[0.2] * 4, items=even), runs(*[0.2] * 4, items=even), KEEP, SURE)
    assert same.answer is QualityAnswer.KEPT, "every item is scored the same"
    apart = quality.compare(runs(*[0.2] * 4, items=odd), runs(*[0.2] * 4, items=even), KEEP, SURE)
    assert apart.answer is QualityAnswer.UNDECIDED
    assert apart.runs_needed is None, "with too few items more seeds do not help"
    many = quality.compare(runs(*[0.2] * 4, items=odd * 999), runs(*[0.2] * 4, items=even * 999), KEEP, SURE)
    assert many.answer is QualityAnswer.KEPT


def test_items_count_only_if_both_were_scored_on_the_same_ones(runs):
    alone = quality.compare(runs(0.2), runs(0.2), KEEP, SURE)
    for items in ((), (0.1, 0.2, 0.3)):
        assert quality.compare(runs(0.2, items=items), runs(0.2, items=(0.1, 0.3)), KEEP, SURE) == alone
    uneven = [*runs(0.2, items=(0.1, 0.3)), *runs(0.2, items=(0.2,))]
    theirs = runs(0.2, 0.2, items=(0.3, 0.1))
    plain = quality.compare(runs(0.2, 0.2), runs(0.2, 0.2), KEEP, SURE)
    assert quality.compare(uneven, theirs, KEEP, SURE) == plain


def test_the_noise_is_the_scatter_of_final_qualities(make_trial):
    group = [make_trial(0, 10, curve=[0.05, 0.18]), make_trial(1, 10, curve=[0.15, 0.22])]
    found = quality.noise([group])
    assert found.deviation == pytest.approx(0.2 * 0.1 * math.sqrt(2))
    assert found.degrees == 1
    twice = quality.noise([group, group])
    assert (twice.deviation, twice.degrees) == (pytest.approx(found.deviation), 2)


def test_without_two_equal_runs_the_noise_is_unknown(make_trial):
    alone = make_trial(0, 10, curve=[0.1, 0.2])
    assert quality.noise([]) is None
    assert quality.noise([[alone], [make_trial(1, 10, curve=[0.3, 0.4])]]) is None
    assert quality.noise([[alone, make_trial(1, 10)]]) is None, "a run without a curve does not count"


def test_runs_with_equal_ends_have_no_noise(make_trial):
    twins = [make_trial(n, 10, curve=[0.1 * n, 0.2]) for n in range(2)]
    assert quality.noise([twins]) == Noise(0.0, 1)


def test_the_more_runs_the_narrower_the_interval():
    noise = Noise(0.01, 1)
    widths = [quality.half_width(runs, noise) for runs in (2, 3, 6, 12)]
    assert widths == sorted(widths, reverse=True)
    assert quality.half_width(10_000, noise) < 0.001


@pytest.fixture
def answers(make_trial):
    """Returns how often each answer is given for a true `share` and so many `runs` of each side."""

    def count(share, runs, times=400, noise=0.03):
        rng = random.Random(0)

        def drawn(factor):
            curves = [[q * factor * rng.gauss(1, noise) for q in (0.1, 0.15, 0.18, 0.2)] for _ in range(runs)]
            return [make_trial(n, 10, curve=curve) for n, curve in enumerate(curves)]

        found = Counter()
        for _ in range(times):
            ours, theirs = drawn(share), drawn(1.0)
            found[quality.compare(ours, theirs, KEEP, quality.noise([ours, theirs])).answer] += 1
        return {answer: found[answer] / times for answer in QualityAnswer}

    return count


def test_a_lost_quality_is_rarely_called_kept(answers):
    assert answers(0.90, 3)[QualityAnswer.KEPT] <= 0.01
    assert answers(KEEP, 3)[QualityAnswer.KEPT] <= 0.06, "the level of the test, at its border"


def test_a_kept_quality_is_rarely_called_lost(answers):
    assert answers(KEEP, 3)[QualityAnswer.LOST] <= 0.06
    assert answers(1.0, 3)[QualityAnswer.LOST] <= 0.01


def test_a_better_quality_is_called_kept_and_a_much_worse_one_lost(answers):
    assert answers(1.05, 4)[QualityAnswer.KEPT] >= 0.95
    assert answers(0.85, 4)[QualityAnswer.LOST] >= 0.95


@pytest.mark.parametrize("repeats", [3, pytest.param(6, marks=pytest.mark.slow)])
def test_settings_at_the_margin_rarely_pass_over_all_looks(repeats):
    """Looks after 3, 4, ... runs of both sides, as a search does."""
    rng, passed, times = random.Random(repeats), 0, 4000
    level = quality.early_level(repeats)
    for _ in range(times):
        ours = [rng.gauss(KEEP, 0.02) for _ in range(repeats)]
        theirs = [rng.gauss(1.0, 0.02) for _ in range(repeats)]
        for seen in range(3, repeats + 1):
            a, b = ended(ours[:seen]), ended(theirs[:seen])
            found = quality.compare(a, b, KEEP, quality.noise([a, b]), level=level)
            if found.answer is QualityAnswer.KEPT:
                passed += 1
                break
    assert 0.02 * times <= passed <= 0.055 * times


def ended(qualities):
    """Trials with these final qualities and no other figure."""
    done = Outcome(Status.COMPLETED)
    return [Trial(n, {}, done, Measurement(quality=quality)) for n, quality in enumerate(qualities)]


def test_the_level_is_stricter_with_more_looks():
    levels = [quality.early_level(repeats) for repeats in (0, 3, 4, 6, 20)]
    assert levels[0] == levels[1] == quality.LEVEL
    assert levels == sorted(levels)
    assert levels[-1] < 0.99


def test_a_share_is_relative_to_the_references_gain(runs):
    """If the reference fell from 4 to 2, a loss of 2.08 keeps 96% of its gain, and one of 2.2 keeps 90%."""
    theirs = runs(*[-2.0] * 4)
    kept = quality.compare(runs(*[-2.08] * 4), theirs, KEEP, SURE, start=-4.0)
    assert (kept.answer, kept.share.value, kept.gain) == (QualityAnswer.KEPT, pytest.approx(0.96), 2.0)
    lost = quality.compare(runs(*[-2.2] * 4), theirs, KEEP, SURE, start=-4.0)
    assert (lost.answer, lost.share.value) == (QualityAnswer.LOST, pytest.approx(0.9))
    assert quality.compare(runs(*[-2.08] * 4), theirs, KEEP, SURE, start=-2.1).answer is QualityAnswer.LOST


def test_shares_are_formatted_relative_to_the_improvement():
    goal, range_ = Objective(), Figure(1.0, 0.97, 1.0342)
    assert quality.format_share(range_, goal, 1.0) == "97.0% to 103.4% of the baseline's improvement"
    assert quality.format_share(Figure(1.0), goal, 1.0) == "how much equal runs differ is not known"
    assert quality.format_limit("bleu_4", 0.98, None) == "98% of the baseline's improvement in bleu_4"
    limit = quality.format_limit("val_loss", 0.995, None, minimize=True)
    assert limit == "99.5% of the baseline's improvement in val_loss"
    assert quality.format_limit("bleu_4", 0.0, None) == "any bleu_4"
    assert quality.format_requirement(Objective()) == "keeps 95% of the baseline's improvement in bleu_4"
    assert quality.format_requirement(Objective(keep=0)) == "has any bleu_4"


LOSS = Objective(minimize="val_loss", quality="val_loss")
SLACK = Objective(minimize="val_loss", quality="val_loss", within=0.02, keep=None)


def test_an_absolute_slack_is_formatted_in_the_qualitys_units():
    assert quality.format_requirement(SLACK) == "keeps val_loss within 0.02 of the baseline's"
    assert quality.format_limit("bleu_4", None, 0.01) == "0.01 below the baseline's bleu_4"
    assert (
        quality.format_share(Figure(1.0, 0.99, 1.0125), SLACK, 2.4)
        == "0.024 above to 0.03 below the baseline's"
    )
    assert (
        quality.format_share(Figure(1.0, 0.99, 1.0125), SLACK, 1.0)
        == "0.01 above to 0.0125 below the baseline's"
    )


def test_turning_a_figure_keeps_its_interval_in_order():
    found = quality.figure_in_users_sign(Figure(-2.4, -2.5, -2.3), LOSS)
    assert found == Figure(2.4, 2.3, 2.5)
    assert quality.figure_in_users_sign(Figure(-2.4), LOSS) == Figure(2.4)
    assert quality.figure_in_users_sign(Figure(0.2, 0.1, 0.3), Objective()) == Figure(0.2, 0.1, 0.3)
    (point,) = quality.curve_in_users_sign([Evaluation(100, 1.0, -2.4, chance=-9.0)], LOSS)
    assert (point.quality, point.chance) == (2.4, 9.0)
