"""The estimate of a search's remaining time: its range holds, and it is missing while nothing is known."""

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
    return space.revised(budget={"repeats": 0})


def remaining(trials, space, planned, *, running=None, slots=1, limit_s=None, spent_s=0.0):
    plan = SearchPlan(planned, limit_s, spent_s)
    return estimate.remaining(History(trials, space), running or {}, plan, slots)


@pytest.fixture
def lasting(make_trial):
    """Returns a function that makes a trial for each duration."""

    def make(*seconds):
        return [replace(make_trial(n, 10, 0.2), seconds=s) for n, s in enumerate(seconds)]

    return make


def test_there_is_no_estimate_before_three_trials_have_ended(lasting, unconfirmed):
    for count in range(3):
        assert remaining(lasting(*[10.0] * count), unconfirmed, 9) is None
    assert remaining(lasting(10.0, 10.0, 10.0), unconfirmed, 9) == Remaining(60.0, 60.0)


def test_until_then_the_time_limit_is_the_estimate(lasting, unconfirmed):
    left = remaining(lasting(10.0), unconfirmed, 9, limit_s=3600.0, spent_s=60.0)
    assert (left, str(left)) == (Remaining(0.0, 3540.0, is_capped=True), "at most 59m 00s")


def test_stopped_trials_make_the_estimate_shorter_and_wider(lasting, unconfirmed):
    complete = remaining(lasting(*[60.0] * 6), unconfirmed, 20)
    mixed = remaining(lasting(*[60.0, 10.0] * 3), unconfirmed, 20)
    assert mixed.low_s + mixed.high_s < complete.low_s + complete.high_s
    assert mixed.high_s - mixed.low_s > complete.high_s - complete.low_s


def test_concurrent_trials_take_less(lasting, unconfirmed):
    assert remaining(lasting(*[10.0] * 4), unconfirmed, 12, slots=4).high_s == 20.0


def test_a_running_trial_counts_with_its_remaining_time(lasting, unconfirmed):
    *trials, last = lasting(*[10.0] * 4)
    trials.append(replace(last, outcome=None, seconds=0.0))
    assert remaining(trials, unconfirmed, 4, running={3: 4.0}) == Remaining(6.0, 6.0)
    longest = remaining(trials, unconfirmed, 4, running={3: 40.0})
    assert longest == Remaining(20.0, 20.0), "no trial took longer: it takes half of its time again"


def test_an_interrupted_trial_is_still_to_run(lasting, unconfirmed):
    *trials, last = lasting(*[10.0] * 4)
    trials.append(replace(last, outcome=None, seconds=0.0))
    assert remaining(trials, unconfirmed, 4).high_s == 10.0


def test_confirming_the_winner_is_included(make_trial, space):
    faster = [make_trial(n, 10 + 10 * n, 0.2, half_width=0.1, x=n) for n in range(4)]
    # for each of 3 finalists a race of 40 s and 3 seeds of both sides
    assert remaining(faster, space, 4) == Remaining(0.0, 300.0)


def test_a_decided_confirmation_takes_no_more_time(make_trial, space, confirming):
    trials = [make_trial(n, 10 + 20 * (n == 1), curve=[0.2], half_width=0.1, x=n) for n in range(3)]
    trials += confirming(trials, 1)
    assert remaining(trials, space, 3).high_s == 0.0


def test_the_ablation_is_included(make_trial, space):
    trials = [make_trial(0, 10, 0.2, half_width=0.1)]
    far = {"precision": "bf16", "num_workers": 4, "micro_batch_size": 32, "learning_rate": 2e-4}
    trials += [make_trial(n, 30, 0.2, half_width=0.1, **far) for n in (1, 2)]
    before_s = remaining(trials, space, 3).high_s
    step = make_trial(3, 20, 0.2, half_width=0.1, ablation_of=1, **{**far, "num_workers": 2})
    assert remaining([*trials, step], space, 3).high_s == before_s - 10.0


def test_the_time_limit_caps_the_estimate(lasting, unconfirmed):
    left = remaining(lasting(*[60.0] * 4), unconfirmed, 99, limit_s=600.0, spent_s=500.0)
    assert left == Remaining(100.0, 100.0, is_capped=True)


def test_a_finished_search_has_nothing_left(lasting, unconfirmed):
    assert remaining(lasting(*[60.0] * 4), unconfirmed, 4) == Remaining(0.0, 0.0)


@pytest.mark.parametrize(
    ("low_s", "high_s", "capped", "text"),
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
def test_the_estimate_is_rounded_to_its_precision(low_s, high_s, capped, text):
    assert str(Remaining(low_s, high_s, is_capped=capped)) == text


def test_an_estimate_counts_down():
    assert Remaining(10.0, 60.0).after(20.0) == Remaining(0.0, 40.0)


def test_the_range_holds_for_trials_of_very_different_lengths(lasting, unconfirmed):
    """Half of the trials stop early; of 200 half-way estimates at least nine in ten hold."""
    rng, inside = random.Random(0), 0
    for _ in range(200):
        took = [rng.gauss(60, 5) if rng.random() < 0.5 else rng.uniform(3, 20) for _ in range(20)]
        left = remaining(lasting(*took[:10]), unconfirmed, 20)
        inside += left.low_s <= sum(took[10:]) <= left.high_s
    assert inside >= 180


@pytest.mark.slow
def test_the_range_holds_for_whole_searches(recorded):
    """Replayed searches stop and confirm trials; of ten half-way estimates at least eight hold."""
    inside = 0
    for seed in range(10):
        trials = replay.search(recorded, seed, 16).trials
        last = [t for t in trials if t.kind == "searched" and t.outcome][:8][-1].number
        left = remaining([t for t in trials if t.number <= last], recorded.space, 16)
        inside += left.low_s <= sum(t.seconds for t in trials if t.number > last) <= left.high_s
    assert inside >= 8
