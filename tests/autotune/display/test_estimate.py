"""The estimated end of a search: a range that holds, and no figure if nothing is known."""

import random
from dataclasses import replace

import pytest

from autotune.display import estimate
from autotune.display.estimate import Remaining
from autotune.judging.decisions.history import History
from autotune.storage.study_file import SearchPlan
from lab.replay import replay


@pytest.fixture
def unconfirmed(space):
    return space.model_copy(update={"budget": space.budget.model_copy(update={"repeats": 0})})


def lasting(make_trial, seconds, **rest):
    """Trials that took so many seconds each."""
    made = [make_trial(n, 10, 0.2, **rest) for n in range(len(seconds))]
    return [replace(t, seconds=s) for t, s in zip(made, seconds, strict=True)]


def test_there_is_no_estimate_before_three_trials_have_ended(make_trial, unconfirmed):
    for count in range(3):
        trials = lasting(make_trial, [10.0] * count)
        assert estimate.remaining(History(trials, unconfirmed), {}, SearchPlan(9, None), 1) is None
    trials = lasting(make_trial, [10.0] * 3)
    assert estimate.remaining(History(trials, unconfirmed), {}, SearchPlan(9, None), 1) == Remaining(
        60.0, 60.0
    )


def test_until_then_the_time_limit_is_the_estimate(make_trial, unconfirmed):
    left = estimate.remaining(
        History(lasting(make_trial, [10.0]), unconfirmed), {}, SearchPlan(9, 3600.0, 60.0), 1
    )
    assert (left, str(left)) == (Remaining(0.0, 3540.0, is_capped=True), "at most 59m 00s")


def test_stopped_trials_make_the_estimate_shorter_and_wider(make_trial, unconfirmed):
    whole = estimate.remaining(
        History(lasting(make_trial, [60.0] * 6), unconfirmed), {}, SearchPlan(20, None), 1
    )
    mixed = estimate.remaining(
        History(lasting(make_trial, [60.0, 10.0] * 3), unconfirmed), {}, SearchPlan(20, None), 1
    )
    assert mixed.low_s + mixed.high_s < whole.low_s + whole.high_s
    assert mixed.high_s - mixed.low_s > whole.high_s - whole.low_s


def test_concurrent_trials_take_less(make_trial, unconfirmed):
    trials = lasting(make_trial, [10.0] * 4)
    assert estimate.remaining(History(trials, unconfirmed), {}, SearchPlan(12, None), 4).high_s == 20.0


def test_a_running_trial_counts_with_its_remaining_time(make_trial, unconfirmed):
    trials = lasting(make_trial, [10.0, 10.0, 10.0, 10.0])
    running = replace(trials.pop(), outcome=None, seconds=0.0)
    left = estimate.remaining(History([*trials, running], unconfirmed), {3: 4.0}, SearchPlan(4, None), 1)
    assert left == Remaining(6.0, 6.0)
    longer = estimate.remaining(History([*trials, running], unconfirmed), {3: 40.0}, SearchPlan(4, None), 1)
    assert longer == Remaining(20.0, 20.0), "nothing took so long: half as long again"


def test_an_interrupted_trial_is_still_to_run(make_trial, unconfirmed):
    trials = lasting(make_trial, [10.0] * 4)
    waiting = replace(trials.pop(), outcome=None, seconds=0.0)
    assert (
        estimate.remaining(History([*trials, waiting], unconfirmed), {}, SearchPlan(4, None), 1).high_s
        == 10.0
    )


def test_confirming_the_winner_is_included(make_trial, space):
    faster = [make_trial(n, 10 + 10 * n, 0.2, half_width=0.1, x=n) for n in range(4)]
    left = estimate.remaining(History(faster, space), {}, SearchPlan(4, None), 1)
    assert left == Remaining(20.0, 540.0), (
        "a race and a seed; or 3 finalists, a race of 2 minutes and 3 seeds of both for each"
    )
    equal = [make_trial(n, 10 - n, 0.2, half_width=0.1, x=n) for n in range(4)]
    assert estimate.remaining(History(equal, space), {}, SearchPlan(4, None), 1).low_s == 0.0


def test_past_races_and_repeats_are_not_counted_again(make_trial, space, confirming):
    trials = [make_trial(n, 10 + 20 * (n == 1), curve=[0.2], half_width=0.1, x=n) for n in range(3)]
    trials += confirming(trials, 1)
    lows = [
        estimate.remaining(History(trials[:n], space), {}, SearchPlan(3, None), 1).low_s
        for n in (3, 4, 5, 10)
    ]
    assert lows == [20.0, 10.0, 10.0, 0.0]
    assert estimate.remaining(History(trials, space), {}, SearchPlan(3, None), 1).high_s == 0.0, (
        "the winner is confirmed"
    )


def test_the_ablation_is_included(make_trial, space):
    trials = [make_trial(0, 10, 0.2, half_width=0.1)]
    far = {"precision": "bf16", "num_workers": 4, "micro_batch_size": 32, "learning_rate": 2e-4}
    trials += [make_trial(n, 30, 0.2, half_width=0.1, **far) for n in (1, 2)]
    left = estimate.remaining(History(trials, space), {}, SearchPlan(3, None), 1)
    assert left == Remaining(20.0, 560.0), "three knobs change the speed: two configurations lie between"
    step = make_trial(3, 20, 0.2, half_width=0.1, ablation_of=1, **{**far, "num_workers": 2})
    assert estimate.remaining(History([*trials, step], space), {}, SearchPlan(3, None), 1).high_s == 550.0


def test_the_time_limit_caps_the_estimate(make_trial, unconfirmed):
    left = estimate.remaining(
        History(lasting(make_trial, [60.0] * 4), unconfirmed), {}, SearchPlan(99, 600.0, 500.0), 1
    )
    assert left == Remaining(100.0, 100.0, is_capped=True)


def test_a_finished_search_has_nothing_left(make_trial, unconfirmed):
    left = estimate.remaining(
        History(lasting(make_trial, [60.0] * 4), unconfirmed), {}, SearchPlan(4, None), 1
    )
    assert left == Remaining(0.0, 0.0)


@pytest.mark.parametrize(
    ("low_s", "high_s", "capped", "said"),
    [
        (42.0, 44.0, False, "about 40s"),
        (42.0, 97.0, False, "about 40s to 1m 40s"),
        (300.0, 310.0, False, "about 5m 00s"),
        (1211.0, 2100.0, False, "about 20m 00s to 35m 00s"),
        (4000.0, 9000.0, False, "about 1h 05m to 2h 30m"),
        (3.0, 44.0, False, "up to about 40s"),
        (0.0, 0.0, False, "a few seconds"),
        (0.0, 5400.0, True, "at most 1h 30m"),
    ],
)
def test_the_estimate_is_rounded_to_its_precision(low_s, high_s, capped, said):
    assert str(Remaining(low_s, high_s, is_capped=capped)) == said


def test_an_estimate_counts_down():
    assert Remaining(10.0, 60.0).after(20.0) == Remaining(0.0, 40.0)


def test_the_range_holds_for_trials_of_very_different_lengths(make_trial, unconfirmed):
    """Half of them stopped early: of 200 searches, looked at half-way, at least nine in ten end inside."""
    rng, inside = random.Random(0), 0
    for _ in range(200):
        took = [rng.gauss(60, 5) if rng.random() < 0.5 else rng.uniform(3, 20) for _ in range(20)]
        trials = lasting(make_trial, took[:10])
        left = estimate.remaining(History(trials, unconfirmed), {}, SearchPlan(20, None), 1)
        inside += left.low_s <= sum(took[10:]) <= left.high_s
    assert inside >= 180


def test_the_range_holds_for_whole_searches(recorded):
    """Replayed ones, with their stopping and their confirming, looked at half-way."""
    seen = inside = 0
    for seed in range(10):
        result = replay.search(recorded, seed, 16)
        half = [t for t in result.trials if t.kind == "searched" and t.outcome][:8]
        last = half[-1].number
        then = [t for t in result.trials if t.number <= last]
        left = estimate.remaining(History(then, recorded.space), {}, SearchPlan(16, None), 1)
        took = sum(t.seconds for t in result.trials if t.number > last)
        seen, inside = seen + 1, inside + (left.low_s <= took <= left.high_s)
    assert inside >= 0.8 * seen, (inside, seen)
