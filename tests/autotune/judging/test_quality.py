"""Whether a quality is kept: three answers, what they rest on, and how often they are wrong."""

import math
import random
from collections import Counter

import pytest

from autotune.core.trial import Evaluation
from autotune.judging import quality
from autotune.judging.curves import LEAST_NOISE
from autotune.judging.estimates import Figure
from autotune.judging.quality import Answer, Noise
from autotune.space.sections import Objective

KEEP = 0.95
SURE = Noise(0.02, 100)


@pytest.fixture
def runs(make_trial):
    """Runs that ended with these qualities."""
    return lambda *qualities, **rest: [
        make_trial(n, 10, curve=[found], **rest) for n, found in enumerate(qualities)
    ]


def test_what_is_as_good_is_kept_and_what_is_much_worse_is_lost(runs):
    reference = runs(*[0.2] * 4)
    kept = quality.compare(runs(*[0.2] * 4), reference, KEEP, SURE)
    assert kept.answer is Answer.KEPT
    assert (kept.quality, kept.reference, kept.share) == pytest.approx((0.2, 0.2, 1.0))
    assert KEEP < kept.low < 1 < kept.high
    lost = quality.compare(runs(*[0.18] * 4), reference, KEEP, SURE)
    assert lost.answer is Answer.LOST
    assert lost.high < KEEP
    assert kept.runs_needed is lost.runs_needed is None


def test_what_may_be_either_is_not_decided_and_says_how_many_runs_would(runs):
    one = quality.compare(runs(0.196), runs(0.2), KEEP, SURE)
    assert one.answer is Answer.UNDECIDED
    assert one.low < KEEP < one.high
    needed = one.runs_needed
    assert quality.compare(runs(*[0.196] * needed), runs(*[0.2] * needed), KEEP, SURE).answer is Answer.KEPT
    fewer = needed - 1
    assert quality.compare(runs(*[0.196] * fewer), runs(*[0.2] * fewer), KEEP, SURE).answer is not Answer.KEPT


def test_at_the_very_border_no_number_of_runs_would_decide(runs):
    assert quality.compare(runs(0.19), runs(0.2), KEEP, SURE).runs_needed is None


def test_without_a_known_noise_nothing_is_decided(runs):
    found = quality.compare(runs(0.1), runs(0.2), KEEP, None)
    assert (found.answer, found.low, found.high) == (Answer.UNDECIDED, -math.inf, math.inf)
    assert found.runs_needed is None


def test_without_a_run_or_with_a_quality_of_0_there_is_nothing_to_compare_with(runs):
    assert quality.compare([], runs(0.2), KEEP, SURE) is None
    assert quality.compare(runs(0.2), [], KEEP, SURE) is None
    assert quality.compare(runs(0.2), runs(0.0), KEEP, SURE) is None


def test_of_a_loss_with_its_sign_turned_a_tenth_more_is_a_tenth_worse(runs):
    worse = quality.compare(runs(*[-2.2] * 4), runs(*[-2.0] * 4), KEEP, SURE)
    assert (worse.answer, worse.share) == (Answer.LOST, pytest.approx(0.9))
    better = quality.compare(runs(*[-1.8] * 4), runs(*[-2.0] * 4), KEEP, SURE)
    assert (better.answer, better.share) == (Answer.KEPT, pytest.approx(1.1))


def test_a_run_ends_with_the_mean_of_the_last_quarter_of_its_evaluations(make_trial):
    trial = make_trial(0, 10, curve=[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.2, 0.4])
    assert quality.qualities([trial, make_trial(1, 10)]) == [pytest.approx(0.3)]


def test_few_items_that_differ_leave_open_what_runs_alone_would_decide(runs):
    even, odd = (0.1, 0.3) * 4, (0.3, 0.1) * 4
    same = quality.compare(runs(*[0.2] * 4, items=even), runs(*[0.2] * 4, items=even), KEEP, SURE)
    assert same.answer is Answer.KEPT, "every item is scored the same"
    apart = quality.compare(runs(*[0.2] * 4, items=odd), runs(*[0.2] * 4, items=even), KEEP, SURE)
    assert apart.answer is Answer.UNDECIDED
    assert apart.runs_needed is None, "more seeds do not help where the items are too few"
    many = quality.compare(runs(*[0.2] * 4, items=odd * 999), runs(*[0.2] * 4, items=even * 999), KEEP, SURE)
    assert many.answer is Answer.KEPT


def test_items_count_only_where_both_were_scored_on_the_same_ones(runs):
    alone = quality.compare(runs(0.2), runs(0.2), KEEP, SURE)
    for items in ((), (0.1, 0.2, 0.3)):
        assert quality.compare(runs(0.2, items=items), runs(0.2, items=(0.1, 0.3)), KEEP, SURE) == alone
    uneven = [*runs(0.2, items=(0.1, 0.3)), *runs(0.2, items=(0.2,))]
    theirs = runs(0.2, 0.2, items=(0.3, 0.1))
    assert quality.compare(uneven, theirs, KEEP, SURE) == quality.compare(
        runs(0.2, 0.2), runs(0.2, 0.2), KEEP, SURE
    )


def test_the_noise_is_that_between_equal_runs_in_the_later_half(make_trial):
    group = [
        make_trial(n, 10, curve=[0.1 * early, 0.2 * late])
        for n, early, late in ((0, 0.5, 0.9), (1, 1.5, 1.1))
    ]
    found = quality.noise([group])
    assert found.deviation == pytest.approx(0.1 * math.sqrt(2))
    assert found.degrees == 1
    twice = quality.noise([group, group])
    assert (twice.deviation, twice.degrees) == (pytest.approx(found.deviation), 2)


def test_without_two_equal_runs_the_noise_is_unknown(make_trial):
    alone = make_trial(0, 10, curve=[0.1, 0.2])
    assert quality.noise([]) is None
    assert quality.noise([[alone], [make_trial(1, 10, curve=[0.3, 0.4])]]) is None
    assert quality.noise([[alone, make_trial(1, 10)]]) is None, "a run without a curve says nothing"


def test_runs_that_read_the_same_are_never_taken_to_be_without_noise(make_trial):
    twins = [make_trial(n, 10, curve=[0.1, 0.2]) for n in range(2)]
    assert quality.noise([twins]).deviation == LEAST_NOISE


def test_the_more_runs_the_narrower_the_interval():
    noise = Noise(0.05, 1)
    widths = [quality.half_width(runs, noise) for runs in (2, 3, 6, 12)]
    assert widths == sorted(widths, reverse=True)
    assert quality.half_width(10_000, noise) < 0.01


@pytest.fixture
def answers(make_trial):
    """How often each answer is given where so many runs of both sides truly have such a share."""

    def count(share, runs, times=400, noise=0.03):
        rng = random.Random(0)

        def drawn(times_better):
            return [
                make_trial(
                    n, 10, curve=[q * times_better * rng.gauss(1, noise) for q in (0.1, 0.15, 0.18, 0.2)]
                )
                for n in range(runs)
            ]

        found = Counter()
        for _ in range(times):
            ours, theirs = drawn(share), drawn(1.0)
            found[quality.compare(ours, theirs, KEEP, quality.noise([ours, theirs])).answer] += 1
        return {answer: found[answer] / times for answer in Answer}

    return count


def test_a_lost_quality_is_hardly_ever_called_kept(answers):
    assert answers(0.90, 3)[Answer.KEPT] <= 0.01
    assert answers(KEEP, 3)[Answer.KEPT] <= 0.06, "the level of the test, at its border"


def test_a_kept_quality_is_hardly_ever_called_lost(answers):
    assert answers(KEEP, 3)[Answer.LOST] <= 0.06
    assert answers(1.0, 3)[Answer.LOST] <= 0.01


def test_a_better_quality_is_called_kept_and_a_much_worse_one_lost(answers):
    assert answers(1.05, 4)[Answer.KEPT] >= 0.95
    assert answers(0.85, 4)[Answer.LOST] >= 0.95


def test_a_share_of_what_is_below_0_is_told_as_how_far_it_is_from_it():
    assert quality.between(0.97, 1.034, 0.2) == "97% to 103% of it at 95%"
    assert quality.between(-math.inf, math.inf, 0.2) == "it is not known how far equal runs differ"
    assert quality.between(0.97, 1.034, -2.4) == "3% below it to 3% above it at 95%"
    assert quality.limit(0.98, "bleu_4", 0.2) == "98% of the baseline's bleu_4"
    assert quality.limit(0.98, "neg_loss", -2.4239) == "2% below the baseline's neg_loss"
    assert quality.keeps(0.98, "neg_loss", -2.4239) == "is at most 2% below the baseline's neg_loss"


LOSS = Objective(minimize="val_loss")
SLACK = Objective(minimize="val_loss", within=0.02)


def test_of_what_is_minimized_more_is_worse():
    assert (
        quality.keeps(0.98, "val_loss", 2.4, minimize=True) == "is at most 2% above the baseline's val_loss"
    )
    assert quality.limit(0.995, "val_loss", None, minimize=True) == "0.5% above the baseline's val_loss"
    assert quality.keeps(0.0, "val_loss", 2.4, minimize=True) == "has any val_loss"
    assert quality.between(0.97, 1.034, -2.4, LOSS) == "3% above it to 3% below it at 95%"


def test_an_absolute_slack_is_told_in_the_qualitys_own_units():
    told = quality.keeps(None, "val_loss", 2.4, within=0.02, minimize=True)
    assert told == "is at most 0.02 above the baseline's val_loss"
    assert quality.limit(None, "bleu_4", 0.2, within=0.01) == "0.01 below the baseline's bleu_4"
    assert quality.between(0.99, 1.0125, -2.4, SLACK) == "0.024 above it to 0.03 below it at 95%"


def test_what_is_shown_has_the_users_sign_and_its_interval_in_order():
    found = quality.shown_figure(Figure(-2.4, -2.5, -2.3), LOSS)
    assert found == Figure(2.4, 2.3, 2.5)
    assert quality.shown_figure(Figure(-2.4), LOSS) == Figure(2.4)
    assert quality.shown_figure(Figure(0.2, 0.1, 0.3), Objective()) == Figure(0.2, 0.1, 0.3)
    (point,) = quality.shown_curve([Evaluation(100, 1.0, -2.4, chance=-9.0)], LOSS)
    assert (point.quality, point.chance) == (2.4, 9.0)
