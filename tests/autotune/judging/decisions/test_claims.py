"""Claims about a finalist: its speed from a race, its quality or its time to a target from seeds."""

import math
import random
import re
from dataclasses import replace

import pytest

from autotune.core.measurement import Evaluation, Outside
from autotune.core.trial import Failure, Outcome, Repeat, Status
from autotune.judging.decisions import claims, confirm
from autotune.judging.decisions.history import History
from tests.autotune.conftest import reaching, slices_of


@pytest.fixture
def pair(make_trial):
    """A baseline with its second run, and trial 2, which may be twice as fast."""
    return [
        make_trial(0, 10, curve=[0.2], half_width=0.1),
        make_trial(1, 10, curve=[0.2], half_width=0.1, repeat=confirm.noise_repeat()),
        make_trial(2, 20, curve=[0.2], half_width=0.1, micro_batch_size=32),
    ]


@pytest.fixture
def raced(pair, make_trial):
    """The pair, a race that trial 2 has won by `factor`, and repeats of trial 2 with these qualities."""

    def make(*qualities, factor=2.0, apart=0.02, **rest):
        trials = [*pair, make_trial(3, race=(0, 2), slices=slices_of({2: factor}, apart=apart))]
        for n, quality in enumerate(qualities, start=1):
            again = make_trial(len(trials), 20, curve=[quality], half_width=0.1, repeat=Repeat(2, n), **rest)
            trials.append(replace(again, config=pair[2].config))
        return trials

    return make


def test_before_a_race_the_speed_is_unknown(pair, space):
    found = claims.claim(2, History(pair, space))
    assert (found.factor, found.rounds, found.seeds) == (None, 0, 0)
    assert not found.is_done
    assert not found.holds


def test_the_factor_comes_from_the_race_and_not_from_the_trials(raced, space):
    found = claims.claim(2, History(raced(factor=1.5), space))
    assert found.factor.value == pytest.approx(1.5, rel=0.001)
    assert (found.factor.low, found.factor.high) == pytest.approx((1.47, 1.53), rel=0.01)
    assert found.rounds == 20
    assert not found.is_done, "whether it keeps the quality is unknown yet"


def test_a_finalist_without_a_certain_gain_is_refuted_by_the_race(raced, space):
    for factor in (0.9, 1.0, 1.01):
        found = claims.claim(2, History(raced(factor=factor), space))
        assert found.is_done
        assert "and may be only" in found.why_not
    assert claims.claim(2, History(raced(factor=1.05), space)).why_not is None


def test_a_short_race_confirms_nothing(pair, make_trial, space):
    short = make_trial(3, race=(0, 2), slices=slices_of({2: 2.0}, rounds=4))
    found = claims.claim(2, History([*pair, short], space))
    assert found.rounds == 4
    assert not found.holds
    assert found.why_not == "measured again, it was 2.00x as fast, in too few turns to be sure"


def test_turns_of_no_time_tell_nothing(pair, make_trial, space):
    """The lines of a program that buffers its output all come at the same time."""
    sliced = slices_of({2: 2.0})
    empty = [replace(one, round=one.round + 20, seconds=0.0) for one in sliced]
    with_empty, without = (make_trial(3, race=(0, 2), slices=each) for each in ((*sliced, *empty), sliced))
    found, expected = (claims.claim(2, History([*pair, race], space)) for race in (with_empty, without))
    assert found.factor == expected.factor


def test_a_kept_quality_is_claimed_after_three_seeds(raced, space):
    for fewer in ([0.2], [0.2, 0.21]):
        assert not claims.claim(2, History(raced(*fewer), space)).is_done
    trials = raced(0.199, 0.2, 0.201)
    assert not claims.claim(2, History(trials, space)).is_done, "the baseline has two"
    trials.append(replace(trials[1], number=len(trials), repeat=Repeat(0, 1)))
    found = claims.claim(2, History(trials, space))
    assert found.holds
    assert found.seeds == 3
    assert (found.kept.quality, found.kept.reference) == pytest.approx((0.2, 0.2))
    assert 0.95 < found.kept.share.low < 1 < found.kept.share.high


def test_more_looks_require_a_stricter_level(raced, space):
    """With twenty seeds there are eighteen looks, each at a stricter level than a single one."""
    trials = raced(0.194, 0.2, 0.206)
    trials.append(replace(trials[1], number=len(trials), repeat=Repeat(0, 1)))
    assert claims.claim(2, History(trials, space)).holds
    assert not claims.claim(2, History(trials, space.revised(budget={"repeats": 20}))).is_done


def trained(raced, lengths, seconds):
    """Returns raced trials of equal speed whose trainings have these lengths and take these seconds."""
    trials = [
        replace(
            t, config={**t.config, "length": lengths.get(t.original, 1)}, seconds=seconds.get(t.original, 1.0)
        )
        for t in raced(0.2, 0.2, 0.2, factor=1.0)
    ]
    return [*trials, replace(trials[0], number=len(trials), repeat=Repeat(0, 1))]


def test_at_equal_speed_the_shorter_training_is_faster(raced, planned):
    for length, factor in ((10_000, 2.0), (40_000, 0.5)):
        trials = trained(raced, {0: 20_000, 2: length}, {0: 20.0, 2: length / 1000})
        found = claims.claim(2, History(trials, planned))
        assert found.factor.value == pytest.approx(factor, rel=0.01)
        assert found.holds is (factor > 1)


def test_a_slow_start_can_cancel_faster_steps(raced, planned):
    """Compiling may take longer than all that it saves of a short training."""
    trials = trained(raced, {0: 20_000, 2: 10_000}, {0: 100.0, 2: 110.0})
    refuted = claims.claim(2, History(trials, planned))
    assert not refuted.holds
    assert refuted.why_not == "from start to end, a run takes 1m 50s instead of 1m 40s"


def test_a_miniature_does_not_tell_how_long_the_training_takes(raced, planned):
    """Of the training, starting and compiling are a smaller part."""
    longer = planned.revised(training={"samples": 100_000})
    history = History(trained(raced, {0: 20_000, 2: 10_000}, {0: 100.0, 2: 110.0}), longer)
    assert claims.claim(2, history).holds
    assert history.runs_s(history.trial(2), history.trial(0)) == []


def test_runs_that_went_on_after_an_interruption_do_not_tell_how_long_one_takes(raced, planned):
    trials = trained(raced, {0: 20_000, 2: 10_000}, {0: 100.0, 2: 110.0})
    last = trials[-1]
    curve = tuple(replace(point, seconds=95.0) for point in last.measurement.curve)
    trials[-1] = replace(last, seconds=3.0, measurement=replace(last.measurement, curve=curve))
    assert History(trials, planned).run_s(trials[0]) == 100.0


def test_evaluations_that_a_trial_leaves_out_are_part_of_a_run(raced, planned):
    often = planned.model_copy(
        update={"training": planned.training.model_copy(update={"samples_per_evaluation": 2_000})}
    )
    trials = [
        replace(t, measurement=replace(t.measurement, outside=Outside(1, 3.0)))
        for t in trained(raced, {0: 20_000, 2: 10_000}, {0: 100.0, 2: 50.0})
    ]
    count = len(trials[0].measurement.curve)
    assert History(trials, often).run_s(trials[0]) == 100.0 + 3.0 * (10 - count)
    assert History(trials, planned).run_s(trials[0]) == 100.0


def test_a_lost_quality_is_refuted_early(raced, space):
    found = claims.claim(2, History(raced(0.1), space))
    assert found.is_done
    assert found.why_not.startswith("worse bleu_4, 0.1000 instead of 0.2000")


def test_an_undecided_claim_says_what_would_decide_it(raced, space):
    trials = raced(0.185, 0.193, 0.201)
    trials.append(replace(trials[1], number=len(trials), repeat=Repeat(0, 1)))
    found = claims.claim(2, History(trials, space))
    assert found.is_done
    assert "bleu_4 undecided after 3 seeds" in found.why_not
    assert "seeds each would decide it" in found.why_not


def test_the_finalists_own_run_does_not_count(raced, space):
    trials = raced(0.1)
    trials[2] = replace(trials[2], measurement=replace(trials[2].measurement, quality=0.9))
    assert claims.claim(2, History(trials, space)).kept.quality == pytest.approx(0.1)


def test_runs_on_another_device_do_not_count(raced, space):
    trials = raced(0.2, 0.2)
    assert claims.claim(2, History(trials, space)).seeds == 2
    moved = replace(trials[4].measurement, device="another")
    trials[4] = replace(trials[4], measurement=moved)
    assert claims.claim(2, History(trials, space)).seeds == 1


def test_if_any_quality_will_do_the_race_alone_decides(raced, space):
    found = claims.claim(2, History(raced(), space.revised(objective={"keep": 0.0})))
    assert (found.holds, found.kept) == (True, None)


def training_alike(trials, space):
    """Returns the trials with the baseline's settings, except for the number of loader workers."""
    return [replace(t, config={**space.baseline_config, "num_workers": 4 if t.number else 2}) for t in trials]


@pytest.mark.parametrize("select", ["same-training", "same-quality"])
def test_of_the_same_training_one_seed_without_a_certain_loss_is_enough(raced, space, select):
    space = space.revised(objective={"select": select})
    assert not claims.claim(2, History(training_alike(raced(), space), space)).is_done
    assert claims.claim(2, History(training_alike(raced(0.19), space), space)).holds
    lost = claims.claim(2, History(training_alike(raced(0.1), space), space))
    assert lost.why_not.startswith("worse bleu_4, ")


def test_of_the_same_training_single_runs_show_no_quality(raced, space):
    space = space.revised(objective={"select": "same-training"})
    failed = Outcome(Status.FAILED, Failure.ERROR, "as made")

    def claim(*qualities):
        first, noise, *rest = training_alike(raced(*qualities), space)
        return claims.claim(2, History([first, replace(noise, outcome=failed), *rest], space))

    assert not claim(0.1).is_done, "a second seed shows how far seeds differ"
    assert claim(0.1, 0.101).why_not.startswith("worse bleu_4, ")
    assert claim(0.2, 0.201).holds


def test_rounding_may_cost_quality_unless_that_is_allowed(raced, space):
    trials = [
        replace(t, config={**t.config, "precision": "bf16"}) for t in training_alike(raced(0.19), space)
    ]
    trials[0] = replace(trials[0], config=space.baseline_config)
    assert not claims.claim(2, History(trials, space)).is_done
    assert claims.claim(2, History(trials, space.revised(objective={"select": "same-training"}))).holds


def test_without_a_quality_above_0_only_the_same_training_can_be_claimed(raced, space):
    none = {"curve": (Evaluation(100, 10.0, 0.0),), "quality": 0.0}
    trials = [replace(t, measurement=replace(t.measurement, **none)) for t in raced(0.0, 0.0, 0.0)]
    trials.append(replace(trials[1], number=len(trials), repeat=Repeat(0, 1)))
    assert claims.claim(2, History(training_alike(trials, space), space)).holds
    assert claims.claim(2, History(trials, space)).why_not == "its bleu_4 cannot be compared"
    assert not claims.claim(2, History(trials[:5], space)).is_done, "there are seeds left"


@pytest.mark.parametrize(
    ("ended", "why_not"),
    [
        ({"failure": "oom"}, "its run with another seed (trial 4) failed (oom), as made"),
        (
            {"peak": 90, "limit": 100},
            "measured again, it used 90% of the memory limit, more than the allowed 85%",
        ),
        ({"scores": {"rouge_l": 0.1}}, "measured again, rouge_l is 0.1, and must be >= 0.2"),
        ({"peak": 80, "limit": 100, "scores": {"rouge_l": 0.2}}, None),
    ],
)
def test_a_repeat_that_may_not_be_recommended_ends_the_claim(raced, make_trial, space, ended, why_not):
    goal = space.revised(objective={"constraints": {"rouge_l": ">= 0.2"}})
    again = make_trial(4, 20, **{"curve": [0.2], "scores": {"rouge_l": 0.3}, **ended}, repeat=Repeat(2, 1))
    found = claims.claim(2, History([*raced(), again], goal))
    assert (found.why_not, found.is_done) == (why_not, why_not is not None)


def test_a_failed_race_refutes_its_only_finalist(pair, make_trial, space):
    alone, among = (make_trial(3, race=members, failure="oom") for members in ((0, 2), (0, 2, 1)))
    why_not = claims.claim(2, History([*pair, alone], space)).why_not
    assert why_not == "its speed comparison (trial 3) failed (oom), as made"
    assert claims.claim(2, History([*pair, among], space)).why_not is None, "another member may have failed"


def test_one_failure_that_may_be_by_chance_does_not_refute_a_finalist(raced, pair, make_trial, space):
    trials, by_chance = raced(0.2), Outcome(Status.FAILED, Failure.ERROR, "reset by peer", is_passing=True)
    failed = replace(make_trial(5, repeat=Repeat(2, 2), **pair[2].config), outcome=by_chance)
    once, twice = (
        History([*trials, *(replace(failed, number=5 + n) for n in range(k))], space) for k in (1, 2)
    )
    assert claims.claim(2, once).why_not is None
    assert claims.next_seed(pair[2], once) == Repeat(2, 3)
    assert claims.claim(2, twice).why_not.startswith("its run with another seed (trial 6) failed (error)")
    lost = [make_trial(n, race=(0, 2), failure="lost") for n in (3, 4)]
    assert confirm.next_step(History([*pair, lost[0]], space)).race == (0, 2)
    assert "speed comparison (trial 4)" in claims.claim(2, History([*pair, *lost], space)).why_not


def test_the_last_race_counts_if_it_decided(pair, make_trial, space):
    def counted(*factors, members=(0, 2), apart=0.0):
        slices = [slices_of({2: factor, 1: 1.5}, apart=apart) for factor in factors]
        races = [make_trial(n, race=members, slices=each) for n, each in enumerate(slices, start=3)]
        race = claims.race_of(2, History([*pair, *races], space))
        return race and race.number

    assert counted() is None
    assert counted(2.0, 3.0) == 4
    assert counted(2.0, members=(0, 2, 1)) == 3
    assert counted(0.9, members=(0, 2, 1)) == 3, "surely no faster"
    assert counted(1.05, members=(0, 2, 1), apart=0.2) is None
    assert counted(1.05, apart=0.2) == 3, "the only rival of the baseline"


def test_seeds_go_to_the_finalist_and_to_the_baseline_if_that_has_fewer(raced, space):
    trials, seeds = raced(), []
    while (seed := claims.next_seed(trials[2], History(trials, space))) is not None:
        seeds.append((seed.of, seed.round))
        trials.append(replace(trials[seed.of], number=len(trials), repeat=seed))
    assert seeds == [(2, 1), (2, 2), (2, 3), (0, 1)], "the baseline has two runs already"
    assert [t.seed for t in trials if t.repeat] == [1, 2, 3, 4, 2]
    more = space.revised(budget={"repeats": 4})
    assert claims.next_seed(trials[2], History(trials, more)) == Repeat(2, 4)


def test_a_baseline_whose_repeats_fail_is_not_repeated_forever(raced, make_trial, space):
    trials = raced(0.2, 0.2, 0.2)
    for number in (1, 2):
        assert claims.next_seed(trials[2], History(trials, space)) == Repeat(0, number)
        trials.append(make_trial(len(trials), failure="lost", repeat=Repeat(0, number)))
    assert claims.next_seed(trials[2], History(trials, space)) is None


@pytest.fixture
def sooner(space):
    return space.revised(objective={"target": 0.2})


@pytest.fixture
def reached(raced):
    """A race won by `factor`, and runs of the baseline and the finalist that needed so many samples."""

    def make(theirs, ours, factor=1.0, apart=0.02):
        trials = raced(*[0.2] * len(ours), factor=factor, apart=apart)
        trials[0], trials[1] = reaching(trials[0], theirs[0]), reaching(trials[1], theirs[1])
        return trials[:4] + [reaching(t, n) for t, n in zip(trials[4:], ours, strict=True)]

    return make


def test_the_time_to_target_combines_samples_and_race_speed(reached, sooner):
    trials = reached([10_000, 10_000], [5_000, 5_000], factor=1.5)
    found = claims.claim(2, History(trials, sooner))
    assert found.factor.value == pytest.approx(3.0, rel=0.01)
    assert 1 < found.factor.low < 3 < found.factor.high
    assert (found.holds, found.seeds, found.rounds) == (True, 2, 20)


def test_more_samples_can_cancel_a_higher_speed(reached, sooner):
    trials = reached([10_000, 10_000], [20_000, 20_000], factor=1.5)
    found = claims.claim(2, History(trials, sooner))
    assert found.factor.value == pytest.approx(0.75, rel=0.01)
    assert "and may be only" in found.why_not
    assert found.is_done


def test_errors_of_race_and_runs_widen_the_interval(reached, sooner):
    def width(apart, spread):
        ours = [5_000 * (1 - spread), 5_000 * (1 + spread)]
        trials = reached([10_000, 10_000], ours, factor=1.5, apart=apart)
        found = claims.claim(2, History(trials, sooner))
        return found.factor.high / found.factor.low

    assert width(0.02, 0.0) < width(0.1, 0.0)
    assert width(0.02, 0.05) < width(0.02, 0.1)


def test_scattered_runs_stay_open_until_the_last_seed(reached, sooner):
    needs = [7_000, 10_000, 8_500]
    for count in (1, 2):
        trials = reached([8_000, 12_000], needs[:count], factor=1.1)
        assert not claims.claim(2, History(trials, sooner)).is_done
    trials = reached([8_000, 12_000], needs, factor=1.1)
    trials.append(reaching(replace(trials[1], number=9, repeat=Repeat(0, 1)), 10_000))
    found = claims.claim(2, History(trials, sooner))
    assert found.is_done
    assert "and may be only" in found.why_not


def test_a_repeat_that_never_reaches_the_target_ends_the_claim(reached, sooner, make_trial):
    trials = reached([10_000, 10_000], [5_000])
    late = make_trial(5, 20, curve=[0.1, 0.1], repeat=Repeat(2, 2))
    found = claims.claim(2, History([*trials, late], sooner))
    assert found.why_not == "its run with another seed (trial 5) did not reach bleu_4 0.2"


def test_a_baseline_that_misses_the_target_leaves_no_factor(reached, sooner, raced):
    low = raced(0.1)[4].measurement.curve
    trials = reached([1, 1], [5_000, 5_000, 5_000])
    trials[:2] = [replace(t, measurement=replace(t.measurement, curve=low)) for t in trials[:2]]
    assert not claims.claim(2, History(trials[:5], sooner)).is_done
    for number in (7, 8):
        trials.append(replace(trials[1], number=number, repeat=Repeat(0, number - 6)))
    found = claims.claim(2, History(trials, sooner))
    assert found.why_not == "too few runs of the baseline reached bleu_4 0.2 to know its time"


@pytest.fixture
def played(reached, sooner):
    """Returns how often a finalist that needs `share` of the baseline's samples, +-15%, is confirmed.

    Seeds run one by one, as in a search, until the claim is done.
    """

    def share_of_claims(share, times):
        rng, held = random.Random(0), 0

        def needs(of):
            return 10_000 * math.exp(rng.gauss(0, 0.15)) * (share if of else 1)

        for _ in range(times):
            trials = reached([needs(0), needs(0)], [])
            while not (found := claims.claim(2, History(trials, sooner))).is_done:
                seed = claims.next_seed(trials[2], History(trials, sooner))
                again = replace(trials[seed.of], number=len(trials), repeat=seed)
                trials.append(reaching(again, needs(seed.of)))
            held += found.holds
        return held / times

    return share_of_claims


@pytest.mark.slow
def test_equal_settings_are_rarely_claimed_sooner(played):
    assert played(1.0, 1000) <= 0.02


def test_settings_that_need_far_fewer_samples_are_claimed_sooner(played):
    assert played(0.4, 100) >= 0.8


def test_a_stopped_finalist_must_show_its_constraints(raced, space):
    """If any quality will do, a race confirms the speed, but not the constraint."""
    free = space.revised(objective={"keep": 0.0})
    constrained = free.revised(objective={"constraints": {"rouge_l": ">= 0.2"}})

    def claim(goal, *qualities, **scores):
        trials = raced(*qualities, scores=scores) if qualities else raced()
        trials[2] = replace(trials[2], outcome=Outcome(Status.STOPPED))
        return claims.claim(2, History(trials, goal))

    assert claim(free).holds
    assert not claim(constrained).is_done
    assert claim(constrained, 0.2, rouge_l=0.3).holds
    broken = claim(constrained, 0.2, rouge_l=0.1)
    assert broken.why_not == "measured again, rouge_l is 0.1, and must be >= 0.2"


def test_a_lost_loss_is_reported_in_the_users_sign(make_trial, space):
    loss = {"minimize": "val_loss", "quality": "val_loss", "keep": None, "within": 0.02}
    trials = [
        make_trial(0, 10, curve=[-2.0], half_width=0.1),
        make_trial(1, 10, curve=[-2.001], half_width=0.1, repeat=confirm.noise_repeat()),
        make_trial(2, 20, curve=[-2.0], half_width=0.1, micro_batch_size=32),
        make_trial(3, race=(0, 2), slices=slices_of({2: 2.0}, apart=0.02)),
        make_trial(4, 20, curve=[-3.0], half_width=0.1, micro_batch_size=32, repeat=Repeat(2, 1)),
    ]
    why_not = claims.claim(2, History(trials, space.revised(objective=loss))).why_not
    assert why_not.startswith("worse val_loss, 3.0000 instead of 2.0005 (1.01 ")
    assert re.search(r"\(1\.01 above to 0\.\d+ above the baseline's\)$", why_not)
