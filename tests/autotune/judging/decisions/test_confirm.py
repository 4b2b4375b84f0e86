"""The order of races and repeats, and the final recommendation."""

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest

from autotune.core.trial import Repeat
from autotune.judging.decisions import claims, confirm
from autotune.judging.decisions.history import History
from tests.autotune.conftest import reaching, slices_of


@pytest.fixture
def trials(make_trial):
    """A baseline with its repeat, and two faster trials, of which 3 is the fastest."""
    return [
        make_trial(0, 10, curve=[0.2], half_width=0.1),
        make_trial(1, 10, curve=[0.2], half_width=0.1, repeat=confirm.noise_repeat()),
        make_trial(2, 20, curve=[0.2], half_width=0.1, micro_batch_size=32),
        make_trial(3, 30, curve=[0.2], half_width=0.1, micro_batch_size=64),
    ]


@pytest.fixture
def play(make_trial):
    """Runs all steps up to `most` trials. A race measures `factors`, a repeat `reads`."""

    def run(trials, space, factors, reads=None, most=100):
        trials = list(trials)
        while len(trials) < most and (step := confirm.next_step(History(trials, space))) is not None:
            if repeat := step.repeat:
                figures = reads(repeat) if isinstance(reads, Callable) else (reads or {}).get(repeat.of, {})
                ended = make_trial(len(trials), **{"speed": 10, "curve": [0.2], **figures}, repeat=repeat)
            else:
                known = {n: factors[n] for n in step.race[1:]}
                ended = make_trial(len(trials), race=step.race, slices=slices_of(known, apart=0.01))
            trials.append(replace(ended, config=step.config))
        return trials

    return run


WON = {2: 2.0, 3: 3.0}
POOR = {"curve": [0.1]}


def steps(trials):
    """Returns the trials run to confirm: members of a race, or the number of the repeated trial."""
    return [t.race or t.repeat.of for t in trials if t.kind in {"race", "seed"}]


def test_before_the_baseline_has_completed_nothing_is_confirmed(make_trial, space):
    assert confirm.next_step(History([], space)) is None
    assert confirm.next_step(History([make_trial(0, failure="oom")], space)) is None


def test_without_a_better_trial_nothing_is_confirmed(trials, space):
    assert confirm.next_step(History(trials[:2], space)) is None


def test_with_no_repeats_in_the_budget_nothing_is_confirmed_and_nothing_refuted(trials, space):
    history = History(trials, space.revised(budget={"repeats": 0}))
    assert confirm.next_step(history) is None
    assert claims.claim(3, history).why_not is None
    assert confirm.recommended(history) == (trials[3], None)


def test_a_clear_champion_is_raced_alone(trials, space, play):
    played = play(trials, space, WON)
    assert steps(played)[0] == (0, 3)
    assert set(steps(played)[1:]) <= {0, 3}
    trial, claim = confirm.confirmed(History(played, space))
    assert (trial.number, claim.holds, claim.rounds) == (3, True, 20)
    assert claim.factor.value == pytest.approx(3.0, rel=0.01)


def test_close_contenders_race_and_only_the_winner_is_repeated(trials, space, play, make_trial):
    close = make_trial(4, 29.9, curve=[0.2], half_width=0.1, micro_batch_size=8)
    played = play([*trials, close], space, {3: 2.0, 4: 3.0})
    assert steps(played)[0] == (0, 3, 4)
    assert set(steps(played)[1:]) <= {0, 4}
    assert confirm.confirmed(History(played, space))[0].number == 4


def test_a_trial_within_the_drift_is_in_the_race(trials, space, make_trial):
    near, far = (make_trial(4, speed, curve=[0.2], half_width=0.1, micro_batch_size=8) for speed in (28, 26))
    assert confirm.next_step(History([*trials, near], space)).race == (0, 3, 4)
    assert confirm.next_step(History([*trials, far], space)).race == (0, 3)


def test_a_dropped_member_does_not_win_by_its_earlier_rounds(trials, space, make_trial):
    free = space.revised(objective={"keep": 0})
    close = make_trial(4, 29.9, curve=[0.2], half_width=0.1, micro_batch_size=8)
    whole = slices_of({3: 2.0, 4: 2.5}, apart=0.01)
    left = [one for one in whole if one.number != 4 or one.round <= 12]
    race = make_trial(5, race=(0, 3, 4), slices=left)
    assert confirm.confirmed(History([*trials, close, race], free))[0].number == 3


def test_of_equally_fast_settings_only_the_best_is_raced(trials, space, make_trial):
    same = make_trial(4, 30, curve=[0.3], half_width=0.1, micro_batch_size=64, learning_rate=5e-4)
    assert confirm.next_step(History([*trials, same], space)).race == (0, 4)


def test_a_contender_left_undecided_is_raced_alone(trials, space, make_trial):
    close = make_trial(4, 29.9, curve=[0.2], half_width=0.1, micro_batch_size=8)
    left_open = make_trial(5, race=(0, 3, 4), slices=slices_of({3: 1.1, 4: 1.1}, apart=0.3))
    assert confirm.next_step(History([*trials, close, left_open], space)).race == (0, 3)
    failed = make_trial(5, race=(0, 3, 4), failure="oom")
    assert confirm.next_step(History([*trials, close, failed], space)).race == (0, 3)


def test_a_contender_that_was_surely_behind_is_not_raced_again(trials, space, make_trial):
    """It may not be slower than the baseline, but it matters only if the other one is refuted."""
    close = make_trial(4, 29.9, curve=[0.2], half_width=0.1, micro_batch_size=8)
    race = make_trial(5, race=(0, 3, 4), slices=slices_of({3: 2.0, 4: 1.02}, apart=0.04))
    history = History([*trials, close, race], space)
    assert claims.race_of(4, history) is None
    step = confirm.next_step(history)
    assert (step.race, step.repeat.of in {0, 3}) == ((), True)


def test_a_champion_that_was_behind_one_that_is_no_contender_is_raced_alone(trials, space, make_trial):
    slower = make_trial(4, 26, curve=[0.2], half_width=0.1, micro_batch_size=8)
    race = make_trial(5, race=(0, 3, 4), slices=slices_of({3: 1.05, 4: 1.2}, apart=0.3))
    history = History([*trials, slower, race], space)
    assert {number: claims.race_of(number, history) for number in (3, 4)} == {3: None, 4: None}
    assert confirm.next_step(history).race == (0, 3)


def test_what_trains_otherwise_is_no_finalist_of_the_same_training(trials, space, make_trial):
    """As a trial that was stopped as too slow while everything could still change."""
    other = make_trial(2, 90, curve=[0.2], half_width=0.1, micro_batch_size=64, stopped=True)
    assert [t.number for t in confirm.finalists(History([*trials[:2], other], space))] == [2]
    same = space.revised(objective={"select": "same-training"})
    assert confirm.finalists(History([*trials[:2], other], same)) == []


def test_a_contender_that_seemed_slower_in_its_race_is_not_raced_again(trials, space, make_trial):
    close = make_trial(4, 29.9, curve=[0.2], half_width=0.1, micro_batch_size=8)
    both = make_trial(5, race=(0, 3, 4), slices=slices_of({3: 1.1, 4: 0.95}, apart=0.3))
    assert confirm.next_step(History([*trials[:2], trials[3], close, both], space)).race == (0, 3)
    alone = make_trial(6, race=(0, 3), slices=slices_of({3: 0.8}, apart=0.01))
    history = History([*trials[:2], trials[3], close, both, alone], space)
    assert claims.race_of(4, history) is None, "its interval includes a gain"
    assert confirm.next_step(history) is None
    assert confirm.most_s(history) == 0.0


def test_a_finalist_whose_seeds_have_begun_is_decided_before_another_is_raced(trials, space, make_trial):
    race = make_trial(4, race=(0, 3), slices=slices_of({3: 2.0}, apart=0.01))
    seed = make_trial(5, 30, curve=[0.2], half_width=0.1, repeat=Repeat(3, 1))
    faster = make_trial(6, 40, curve=[0.2], half_width=0.1, micro_batch_size=8)
    assert confirm.next_step(History([*trials, race, faster], space)).race == (0, 6)
    going_on = confirm.next_step(History([*trials, race, seed, faster], space))
    assert (going_on.race, going_on.repeat.of in {0, 3}) == ((), True)


def test_a_running_race_refutes_nobody(trials, space, make_trial):
    running = replace(make_trial(4, race=(0, 3)), outcome=None)
    assert confirm.next_step(History([*trials, running], space)).race == (0, 3)
    assert claims.claim(3, History([*trials, running], space)).why_not is None


def test_seeds_are_run_one_by_one_until_the_answer_is_clear(trials, space, play):
    space = space.revised(budget={"repeats": 6})
    clear = play(trials, space, WON)
    spread = itertools.cycle([0.212, 0.186, 0.199])
    unclear = play(trials, space, WON, lambda r: {"curve": [next(spread)]})
    assert len(steps(clear)) < len([step for step in steps(unclear) if step in {(0, 3), 3}])


def test_a_refuted_finalist_is_followed_by_the_runner_up(trials, space, play):
    played = play(trials, space, WON, {3: POOR})
    assert steps(played)[:3] == [(0, 3), 3, (0, 2)]
    assert claims.claim(3, History(played, space)).why_not.startswith("worse bleu_4, ")
    assert confirm.recommended(History(played, space))[0].number == 2
    assert [t.number for t, _ in confirm.refuted(History(played, space))] == [3]


def test_a_finalist_refuted_by_the_race_is_not_repeated(trials, space, play):
    played = play(trials, space, {2: 0.98, 3: 0.97})
    assert steps(played) == [(0, 3), (0, 2)]
    assert confirm.recommended(History(played, space)) == (played[0], None)


def test_a_trial_that_a_refuted_one_had_stopped_is_a_candidate_again(trials, space, play, make_trial):
    stopped = make_trial(4, 25, curve=[0.2], half_width=0.1, micro_batch_size=8, stopped=True)
    played = play([*trials, stopped], space, {**WON, 4: 2.5}, {3: POOR})
    assert (0, 4) in steps(played)
    assert confirm.recommended(History(played, space))[0].number == 4


def test_a_trial_that_was_stopped_for_its_quality_is_no_candidate(trials, space, make_trial):
    noisy = [make_trial(t.number, 10, curve=[0.2, 0.2], half_width=0.1, repeat=t.repeat) for t in trials[:2]]
    poor = make_trial(4, 90, curve=[0.1, 0.1], half_width=0.1, micro_batch_size=8, stopped=True)
    assert [t.number for t in confirm.finalists(History([*noisy, *trials[2:], poor], space))] == [3, 2]


@pytest.mark.parametrize("most", [1, 2, 3])
def test_no_more_finalists_than_budgeted_are_raced(trials, space, play, make_trial, most):
    more = [make_trial(n, 11 + n, curve=[0.2], half_width=0.1, micro_batch_size=n) for n in range(4, 9)]
    chosen = space.revised(budget={"finalists": most})
    played = play([*trials, *more], chosen, dict.fromkeys(range(2, 9), 4.0), lambda r: POOR if r.of else {})
    raced = {number for t in played for number in t.race if number}
    assert len(raced) == most
    assert confirm.recommended(History(played, chosen)) == (played[0], None)


def test_confirming_ends_if_the_baselines_repeats_fail(trials, space, play):
    failed = {"curve": [], "speed": None, "failure": "lost"}
    spread = itertools.cycle([0.212, 0.186, 0.199])
    played = play(trials, space, WON, lambda r: {"curve": [next(spread)]} if r.of else failed, most=1000)
    assert len(played) < 50


def test_the_recommendation_before_during_and_after_confirming(trials, space, play, make_trial):
    assert confirm.recommended(History([], space)) is None
    assert confirm.recommended(History([make_trial(0, failure="oom")], space)) is None
    assert confirm.recommended(History(trials, space)) == (trials[3], None)
    assert confirm.recommended(History(play(trials, space, WON, most=5), space)) == (trials[3], None)
    trial, claim = confirm.recommended(History(play(trials, space, WON), space))
    assert (trial, claim.holds) == (trials[3], True)


def test_a_refuted_trial_is_not_recommended_while_the_runner_up_is_confirmed(trials, space, play):
    played = play(trials, space, WON, {3: POOR}, most=7)
    assert confirm.recommended(History(played, space)) == (trials[2], None)


def test_a_refuted_trial_is_no_finalist_once_others_were_tried(trials, space, play, make_trial):
    one = space.revised(budget={"finalists": 1})
    played = play(trials, one, WON, {3: POOR})
    assert confirm.next_step(History(played, one)) is None
    new = make_trial(len(played), 25, curve=[0.2], half_width=0.1, micro_batch_size=8)
    assert confirm.next_step(History([*played, new], one)).race == (0, new.number)


def test_a_running_configuration_replaces_no_finalist(trials, space, play, make_trial):
    """The finalist's seeds ran slower than its own run, as on a busy machine."""
    one = space.revised(budget={"finalists": 1})
    begun = play(trials, one, WON, {3: {"speed": 5, "half_width": 0.1}}, most=6)
    running = replace(make_trial(len(begun), micro_batch_size=8), outcome=None)
    assert confirm.recommended(History([*begun, running], one)) == (trials[3], None)


@pytest.fixture
def aimed(trials, space):
    """A space with a target, and the trials that reached it after some samples each."""

    def make(needs):
        return space.revised(objective={"target": 0.2}), [reaching(t, needs[t.number]) for t in trials]

    return make


def reads_of(needs, every=100):
    """Returns the curves of repeats that reach the target after `needs` samples, by the repeated trial."""
    curves = {n: {"curve": [0.1] * (samples // every - 2) + [0.2, 0.2]} for n, samples in needs.items()}
    return lambda repeat: curves[repeat.of]


def test_with_a_target_the_first_to_reach_it_is_raced(aimed, play):
    """Trial 3 has the highest throughput, but needs too many samples."""
    goal, known = aimed({0: 1000, 1: 1000, 2: 800, 3: 4000})
    played = play(known, goal, WON, reads_of({0: 1000, 2: 800}))
    assert steps(played)[0] == (0, 2), "it is clearly the first"
    trial, claim = confirm.confirmed(History(played, goal))
    assert trial.number == 2
    assert claim.factor.value == pytest.approx(2.0 * 1000 / 800, rel=0.01)
    missed = play(known, goal, WON, lambda r: {"curve": [0.1, 0.1]} if r.of == 2 else {})
    assert confirm.confirmed(History(missed, goal)) is None
    assert "did not reach bleu_4 0.2" in claims.claim(2, History(missed, goal)).why_not


def test_the_quickest_of_single_runs_may_be_a_lucky_one(aimed, play):
    """Trial 2 needed few samples once; run again, it needs more time than trial 3."""
    goal, known = aimed({0: 3000, 1: 3000, 2: 600, 3: 1000})
    played = play(known, goal, WON, reads_of({0: 3000, 2: 1800, 3: 1000}))
    assert steps(played)[:2] == [2, (0, 3)]
    assert confirm.confirmed(History(played, goal))[0].number == 3


def test_with_a_target_all_trials_that_may_be_first_are_raced(trials, aimed, play):
    """Trial 2 seemed to be first, by a speed that it does not show side by side with trial 3."""
    goal, known = aimed({0: 1000, 1: 1000, 2: 600, 3: 950})
    reads = reads_of({0: 1000, 2: 600, 3: 950}, every=50)
    raced = play(known, goal, {2: 1.5, 3: 3.0}, reads)
    assert steps(raced)[:5] == [2, 3, 2, 3, (0, 2, 3)]
    assert confirm.recommended(History(raced, goal))[0].number == 3, "the race counts"
    slower = [*known[:3], reaching(trials[3], 1200)]
    reads = reads_of({0: 1000, 2: 600, 3: 1200}, every=50)
    assert (0, 2) in steps(play(slower, goal, WON, reads)), "slower by more than the drift"


def test_the_time_to_confirm_follows_from_past_trials(trials, space, make_trial):
    timed = [replace(t, seconds=100.0) for t in trials]
    assert confirm.most_s(History([], space)) == 0.0
    assert confirm.most_s(History(timed, space)) == 60 + 2 * 3 * 100
    assert confirm.most_s(History([replace(t, seconds=1.0) for t in trials], space)) == 4 + 2 * 3
    assert confirm.most_s(History(timed, space.revised(budget={"repeats": 0}))) == 0.0
    assert confirm.most_s(History(timed[:1], space)) == 0.0, "there is nothing to confirm"
    others = [make_trial(4, race=(0, 3)), make_trial(5, 10, ablation_of=3), make_trial(6, failure="oom")]
    more = [*timed, *(replace(t, seconds=9.0) for t in others)]
    assert History(more, space).trial_s == 100.0


def test_ablation_steps_do_not_affect_confirmation(trials, space, play, make_trial):
    played = play(trials, space, WON)
    step, stopped = (
        make_trial(len(played), 99, 0.9, half_width=0.1, precision="bf16", ablation_of=3, stopped=is_stopped)
        for is_stopped in (False, True)
    )
    before, after = History(played, space), History([*played, step], space)
    assert confirm.next_step(after) is None
    assert confirm.confirmed(after) == confirm.confirmed(before)
    assert confirm.finalists(History([*played, stopped], space)) == confirm.finalists(before)


@pytest.fixture
def trained(make_trial, planned):
    """Makes a trial of a space with planned lengths, by default as good as the baseline."""

    def make(number, speed=10.0, quality=0.2, **rest):
        return make_trial(
            number, speed, half_width=0.1, curve=[quality], **{**planned.baseline_config, **rest}
        )

    return make


@pytest.fixture
def leading(trained, planned):
    """The baseline, its pilot, and trial 2, whose settings need half the samples."""
    length = planned.baseline_config["length"]
    pilot = trained(1, quality=0.16, length=length // 2)
    return [trained(0), pilot, trained(2, learning_rate=2e-4, length=length // 2)]


def test_the_baseline_runs_twice_more_once_settings_seem_clearly_faster(leading, trained, planned):
    assert confirm.baseline_repeat(History(leading[:2], planned)) is None
    assert (
        confirm.baseline_repeat(History([*leading[:2], trained(2, speed=11, num_workers=4)], planned)) is None
    )
    trials = list(leading)
    for number in (1, 2):
        repeat = confirm.baseline_repeat(History(trials, planned))
        assert (repeat.config, repeat.repeat) == (planned.baseline_config, Repeat(0, number))
        trials.append(replace(trained(len(trials), quality=0.19), repeat=repeat.repeat))
    assert confirm.baseline_repeat(History(trials, planned)) is None
    no_seeds = planned.revised(budget={"repeats": 0})
    assert confirm.baseline_repeat(History(leading, no_seeds)) is None, "nothing will be confirmed"


def test_a_search_has_plateaued_after_as_many_worse_settings_as_knobs(leading, trained, planned):
    others = [trained(3 + n, quality=0.1, learning_rate=2e-4 + 1e-5 * n) for n in range(1, 6)]
    knobs = len(planned.drawn_knobs)
    assert knobs == len(others)
    assert not confirm.has_plateaued(History([*leading, *others[:-1]], planned))
    assert confirm.has_plateaued(History([*leading, *others], planned))
    assert not confirm.has_plateaued(History([*leading, *others], planned), first=5), (
        "a resumed search tries others"
    )
    better = trained(9, learning_rate=4e-4, length=planned.baseline_config["length"] // 4)
    assert not confirm.has_plateaued(History([*leading, *others, better], planned))
    assert confirm.trials_without_gain(History([*leading, *others, better], planned)) == 0


def test_after_a_refuted_finalist_as_many_are_tried_again(leading, trained, planned, make_trial):
    others = [trained(3 + n, quality=0.1, learning_rate=2e-4 + 1e-5 * n) for n in range(1, 6)]
    race = make_trial(9, race=(0, 2), slices=slices_of({2: 0.4}))
    history = History([*leading, *others, race], planned)
    assert [trial.number for trial, _ in confirm.refuted(history)] == [2]
    assert not confirm.has_plateaued(history)


def test_an_uncertain_speed_is_raced_and_an_equal_one_is_not(make_trial, planned):
    def trained(number, speed, half_width, quality=0.2, **settings):
        config = {**planned.baseline_config, **settings}
        return make_trial(number, speed, quality, half_width=half_width, **config)

    length = planned.baseline_config["length"]
    trials = [
        trained(0, 10, 0.1),
        trained(1, 10, 0.1, quality=0.25, learning_rate=0.002),
        trained(2, 12, 9.0, micro_batch_size=32),
        trained(3, 9, 0.1, micro_batch_size=8),
    ]
    assert [t.number for t in confirm.finalists(History(trials, planned))] == [2]
    shorter = trained(4, 10, 0.1, learning_rate=0.002, length=length // 2)
    assert [t.number for t in confirm.finalists(History([*trials, shorter], planned))] == [4, 2]
    running = replace(make_trial(5, race=(0, 2)), outcome=None)
    known = History([trials[0], trained(2, 9.8, 9.0, micro_batch_size=32), running], planned)
    assert [t.number for t in confirm.finalists(known)] == [2]
    assert confirm.recommended(known)[0].number == 0, "until the race has shown more, it seems slower"
