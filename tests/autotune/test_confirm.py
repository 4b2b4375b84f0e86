"""Who is repeated against the baseline, in which order, and what may be claimed of it in the end."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from autotune import confirm
from autotune.sections import Budget, Objective
from autotune.trial import Repeat


def with_budget(space, **changes):
    return space.model_copy(update={"budget": Budget(**{**space.budget.model_dump(), **changes})})


@pytest.fixture
def trials(make_trial):
    """A baseline and its own repeat, and two that are faster: 3 is the fastest."""
    return [
        make_trial(0, 10, 0.2, half_width=0.1),
        make_trial(1, 10, 0.2, half_width=0.1, repeat=confirm.noise_repeat()),
        make_trial(2, 20, 0.2, half_width=0.1, micro_batch_size=32),
        make_trial(3, 30, 0.2, half_width=0.1, micro_batch_size=64),
    ]


@pytest.fixture
def play(make_trial):
    """Repeats what is asked for, `most` times at most; what it reads is by the number of what is repeated."""

    def run(trials, space, reads, most=100):
        trials = list(trials)
        while len(trials) < most and (repeat := confirm.next_repeat(trials, space)) is not None:
            figures = reads(repeat) if isinstance(reads, Callable) else reads[repeat.of]
            again = make_trial(len(trials), **{"half_width": 0.1, "quality": 0.2, **figures}, repeat=repeat)
            trials.append(type(again)(**{**vars(again), "config": trials[repeat.of].config}))
        return trials

    return run


AS_READ = {0: {"speed": 10}, 2: {"speed": 20}, 3: {"speed": 30}}


def rounds(trials):
    """What was repeated, round by round."""
    found = {}
    for trial in trials:
        if trial.repeat and trial.repeat.round:
            found.setdefault(trial.repeat.round, []).append(trial.repeat.of)
    return found


def test_before_the_baseline_has_completed_nothing_is_repeated(make_trial, space):
    assert confirm.next_repeat([], space) is None
    assert confirm.next_repeat([make_trial(0, failure="oom")], space) is None


def test_without_a_trial_that_is_better_than_the_baseline_nothing_is_repeated(trials, space):
    assert confirm.next_repeat(trials[:2], space) is None


def test_with_no_repeats_in_the_budget_nothing_is_repeated_and_nothing_refuted(trials, space):
    chosen = with_budget(space, repeats=0)
    assert confirm.next_repeat(trials, chosen) is None
    assert confirm.claim(trials[3], trials, chosen).why_not is None
    assert confirm.recommended(trials, chosen) == (trials[3], None)


def test_the_champion_alone_is_repeated_where_no_other_one_may_be_as_fast(trials, space, play):
    played = play(trials, space, AS_READ)
    assert rounds(played) == {1: [0, 3], 2: [3, 0], 3: [0, 3]}


def test_who_may_be_as_fast_is_repeated_with_the_champion_every_other_round_in_reverse(
    trials, space, play, make_trial
):
    close = make_trial(4, 29.9, 0.2, half_width=0.1, micro_batch_size=8)
    played = play([*trials, close], space, {**AS_READ, 4: {"speed": 29.9}})
    assert rounds(played) == {1: [0, 3, 4], 2: [4, 3, 0], 3: [0, 3, 4]}
    assert confirm.confirmed(played, space)[0].number == 3


def test_of_settings_that_must_be_equally_fast_only_the_best_is_repeated(trials, space, play, make_trial):
    same = make_trial(4, 30, 0.3, half_width=0.1, micro_batch_size=64, learning_rate=5e-4)
    assert rounds(play([*trials, same], space, {**AS_READ, 4: {"speed": 30}}))[1] == [0, 4]


def test_each_round_has_members_of_its_own(trials, space, play, make_trial):
    """Who has failed in a round is not in the next one, but the round itself goes on."""
    close = make_trial(4, 29.9, 0.2, half_width=0.1, micro_batch_size=8)
    failed = {"speed": None, "failure": "oom", "quality": None, "half_width": None}
    played = play([*trials, close], space, {**AS_READ, 3: failed, 4: {"speed": 29.9}})
    assert rounds(played) == {1: [0, 3, 4], 2: [4, 0], 3: [0, 4]}
    assert confirm.confirmed(played, space)[0].number == 4


def test_a_round_that_was_broken_off_is_finished_first(trials, space, make_trial):
    begun = make_trial(4, 10, 0.2, half_width=0.1, repeat=Repeat(0, 1, (0, 3)))
    assert confirm.next_repeat([*trials, begun], space) == Repeat(3, 1, (0, 3))


def test_a_winner_is_claimed_with_its_interval_from_pairs_of_the_same_round(trials, space, play):
    speeds = {1: 10, 2: 10.5, 3: 11}  # a machine that becomes faster: both of a round see the same
    played = play(trials[:3], space, lambda r: {"speed": speeds[r.round] * (2 if r.of == 2 else 1)})
    trial, claim = confirm.confirmed(played, space)
    assert (trial.number, claim.pairs, claim.holds) == (2, 3, True)
    assert (claim.factor, claim.low, claim.high) == (pytest.approx(2), pytest.approx(2), pytest.approx(2))
    assert (claim.quality, claim.baseline_quality) == (pytest.approx(0.2), pytest.approx(0.2))


def test_runs_on_different_devices_make_no_pair(trials, space, play):
    played = play(trials, space, AS_READ)
    assert confirm.claim(trials[3], played, space).pairs == 3
    moved = next(t for t in played if t.repeat and t.repeat.round == 2 and t.repeat.of == 3)
    played[moved.number] = replace(moved, measurement=replace(moved.measurement, device="another"))
    assert confirm.claim(trials[3], played, space).pairs == 2


def test_a_finalist_whose_quality_does_not_hold_gives_way_to_the_runner_up(trials, space, play):
    played = play(trials, space, {**AS_READ, 3: {"speed": 30, "quality": 0.1}})
    assert rounds(played) == {1: [0, 3], 2: [3, 0], 3: [0, 3], 4: [2, 0], 5: [0, 2], 6: [2, 0]}
    refuted = confirm.claim(played[3], played, space)
    assert refuted.why_not == "bleu_4 0.1000 is below 0.1900"
    assert confirm.recommended(played, space)[0].number == 2


def test_a_gain_that_may_be_none_is_not_claimed(trials, space, play):
    speeds = iter([20, 9, 11])
    played = play(trials[:3], space, lambda r: {"speed": next(speeds) if r.of == 2 else 10})
    claim = confirm.claim(played[2], played, space)
    assert claim.low < 1 < claim.high
    assert "no gain that is sure" in claim.why_not
    assert confirm.recommended(played, space) == (played[0], None)


def test_a_repeat_that_fails_or_takes_too_much_memory_ends_the_claim_at_once(trials, space, play):
    failed = {"speed": None, "failure": "oom", "quality": None, "half_width": None}
    played = play(trials[:4], with_budget(space, finalists=1), {**AS_READ, 3: failed})
    assert rounds(played) == {1: [0, 3]}
    claim = confirm.claim(played[3], played, space)
    assert claim.why_not == "its repeat, trial 5, failed (oom): as made"
    heavy = {"speed": 30, "peak": 90, "limit": 100}
    played = play(trials[:4], with_budget(space, finalists=1), {**AS_READ, 3: heavy})
    claim = confirm.claim(played[3], played, space)
    assert claim.why_not == "repeated, it takes 90% of the memory, over 85%"


def test_a_trial_that_a_refuted_one_had_stopped_is_a_candidate_again(trials, space, play, make_trial):
    stopped = make_trial(4, 25, curve=[0.2], half_width=0.1, micro_batch_size=8, stopped=True)
    played = play([*trials, stopped], space, {**AS_READ, 3: {"speed": 30, "quality": 0.1}, 4: {"speed": 25}})
    assert rounds(played)[4] == [4, 0]
    assert confirm.recommended(played, space)[0].number == 4


def test_a_trial_that_was_stopped_for_its_quality_is_no_candidate(trials, space, make_trial):
    noisy = [make_trial(t.number, 10, curve=[0.2, 0.2], half_width=0.1, repeat=t.repeat) for t in trials[:2]]
    poor = make_trial(4, 90, curve=[0.1, 0.1], half_width=0.1, micro_batch_size=8, stopped=True)
    assert [t.number for t in confirm.finalists([*noisy, *trials[2:], poor], space)] == [3, 2]


def test_no_more_finalists_than_the_budget_says_are_ever_repeated(trials, space, play, make_trial):
    more = [make_trial(n, 11 + n, 0.2, half_width=0.1, micro_batch_size=n) for n in range(4, 9)]
    reads = lambda r: {"speed": 40, "quality": 0.1} if r.of else {"speed": 10}  # noqa: E731
    for most in (1, 2, 3):
        chosen = with_budget(space, finalists=most)
        played = play([*trials, *more], chosen, reads)
        assert len({number for members in rounds(played).values() for number in members} - {0}) == most
        assert confirm.recommended(played, chosen) == (played[0], None)


def test_a_baseline_whose_repeats_fail_does_not_go_on_for_ever(trials, space, play):
    failed = {"speed": None, "failure": "lost", "quality": None, "half_width": None}
    played = play(trials, space, {**AS_READ, 0: failed}, most=1000)
    assert confirm.confirmed(played, space) is None
    assert max(rounds(played)) <= 2 * space.budget.repeats * space.budget.finalists


def test_the_more_may_be_tried_until_one_holds_the_surer_each_must_be(trials, space, play):
    def width(finalists):
        chosen, speeds = with_budget(space, finalists=finalists), {1: 28, 2: 30, 3: 32}
        played = play(trials, chosen, lambda r: {"speed": speeds[r.round] if r.of == 3 else 10})
        claim = confirm.claim(played[3], played, chosen)
        return math.log(claim.high / claim.low)

    assert width(1) < width(2) < width(3) < width(10)


def test_a_single_pair_says_nothing_of_its_interval(trials, space, play):
    claim = confirm.claim(trials[3], play(trials, space, AS_READ, most=6), space)
    assert (claim.pairs, claim.factor, claim.low, claim.high) == (1, pytest.approx(3), 0.0, math.inf)
    assert not claim.holds
    none = confirm.claim(trials[3], trials, space)
    assert none.pairs == 0
    assert math.isnan(none.factor)


def test_what_is_recommended_before_during_and_after_confirming(trials, space, play, make_trial):
    assert confirm.recommended([], space) is None
    assert confirm.recommended([make_trial(0, failure="oom")], space) is None
    assert confirm.recommended(trials, space) == (trials[3], None)
    assert confirm.recommended(play(trials, space, AS_READ, most=8), space) == (trials[3], None)
    played = play(trials, space, AS_READ)
    trial, claim = confirm.recommended(played, space)
    assert (trial, claim.holds) == (trials[3], True)


def test_what_its_repeats_have_refuted_is_not_recommended_while_the_runner_up_is_repeated(
    trials, space, play
):
    reads = {**AS_READ, 3: {"speed": 30, "quality": 0.1}}
    assert confirm.recommended(play(trials, space, reads, most=12), space) == (trials[2], None)


def test_for_time_to_quality_the_times_to_the_target_are_compared(make_trial, space, play):
    goal = space.model_copy(update={"objective": Objective(select="time-to-quality", target=0.2)})
    trials = [
        make_trial(0, 10, curve=[0.05, 0.1, 0.2], half_width=0.1),
        make_trial(1, 30, curve=[0.1], half_width=0.1, micro_batch_size=64),
        make_trial(2, 20, curve=[0.2], half_width=0.1, micro_batch_size=32),
    ]
    reads = {0: {"speed": 10, "curve": [0.05, 0.1, 0.2]}, 2: {"speed": 20, "curve": [0.2]}}
    trial, claim = confirm.confirmed(play(trials, goal, reads), goal)
    assert (trial.number, claim.factor) == (2, pytest.approx(3.0))
    missed = {**reads, 2: {"speed": 20, "curve": [0.1], "quality": None}}
    played = play(trials, goal, missed)
    assert confirm.confirmed(played, goal) is None
    assert "has not reached bleu_4 0.2" in confirm.claim(played[2], played, goal).why_not


def test_only_what_confirms_runs_alone(trials):
    assert not confirm.is_alone(trials[0])
    assert not confirm.is_alone(trials[1]), "the baseline's own repeat runs as trials do"
    assert confirm.is_alone(type(trials[0])(9, {}, repeat=Repeat(0, 1, (0, 3))))
    assert confirm.is_alone(type(trials[0])(9, {}, way_to=3)), (
        "a step of the way is held against what confirms"
    )


def test_steps_of_the_way_change_nothing_of_what_is_confirmed(trials, space, play, make_trial):
    played = play(trials, space, AS_READ)
    step = make_trial(len(played), 99, 0.9, half_width=0.1, micro_batch_size=32, precision="bf16", way_to=3)
    assert confirm.next_repeat([*played, step], space) is None
    assert confirm.confirmed([*played, step], space) == confirm.confirmed(played, space)
    stopped = make_trial(len(played), 99, half_width=0.1, precision="bf16", way_to=3, stopped=True)
    assert confirm.finalists([*played, stopped], space) == confirm.finalists(played, space)
