"""Every trial that has not won has a reason."""

from dataclasses import replace

import pytest

from autotune.core.trial import Outcome, Repeat, Status, StoppedFor
from autotune.judging.accounts import reasons
from autotune.judging.decisions.history import History
from autotune.judging.decisions.objective import Reason

CURVE = [0.1, 0.15, 0.2]


@pytest.fixture
def baseline(make_trial):
    return make_trial(0, 10, curve=[0.2], half_width=0.1, x=0)


def stopped(reason):
    return Outcome(Status.STOPPED, stopped_for=reason)


def test_every_trial_has_a_reason(make_trial, baseline, space, confirming):
    half = {"half_width": 0.1}
    trials = [
        replace(baseline, measurement=make_trial(0, 10, None, curve=CURVE, **half).measurement),
        make_trial(1, 30, 0.2, x=1, **half),
        make_trial(2, 9, 0.2, x=2, **half),
        make_trial(3, 9, 0.2, x=3, **half),
        make_trial(4, 40, 0.1, x=4, **half),
        make_trial(5, 40, 0.2, x=5, peak=99, limit=100, **half),
        make_trial(6, failure="oom"),
        make_trial(7, failure="diverged"),
        make_trial(8, failure="timeout"),
        make_trial(9, failure="lost"),
        make_trial(16, 5, x=16, stopped=True),
        replace(make_trial(17, 40, x=17, **half), outcome=stopped(StoppedFor.POOR)),
        make_trial(18, 40, 0.2, x=18),
        replace(make_trial(19), outcome=None),
        replace(make_trial(20), outcome=Outcome(Status.INTERRUPTED)),
        make_trial(21, 20, 0.2, x=21, **half),
        make_trial(22, 10, None, repeat=Repeat(0, 0), curve=CURVE, x=0, **half),
        make_trial(23, 40, curve=CURVE, x=23, collapsed=True, **half),
        make_trial(24, 30, 0.2, x=24, **half),
    ]
    trials += confirming(trials, 1, start=30, curve=[0.1])
    trials += confirming(trials, 24, start=40, curve=[0.192], apart=0.01)
    assert reasons.counts(History(trials, space)) == {
        Reason.REFUTED: 1,
        Reason.SLOWER: 1,
        Reason.KEPT: 2,
        Reason.UNDECIDED: 1,
        Reason.QUALITY: 2,
        Reason.CHANCE: 1,
        Reason.MEMORY: 1,
        Reason.OOM: 1,
        Reason.DIVERGED: 1,
        Reason.SILENT: 1,
        Reason.FAILED: 1,
        Reason.UNSURE: 1,
        Reason.OPEN: 2,
        Reason.UNCONFIRMED: 1,
    }


@pytest.mark.parametrize(
    ("stopped_for", "speed", "reason"),
    [
        (StoppedFor.SLOW, 40, Reason.STOPPED),
        (StoppedFor.SLOW, 5, Reason.SLOWER),
        (StoppedFor.POOR, 40, Reason.QUALITY),
        (StoppedFor.POOR, 5, Reason.SLOW_AND_POOR),
        (StoppedFor.DOMINATED, 40, Reason.STOPPED),
        (StoppedFor.LATE, 40, Reason.LATE),
    ],
)
def test_a_stopped_trial_has_the_reason_it_was_stopped_for(make_trial, space, stopped_for, speed, reason):
    baseline = make_trial(0, 10, curve=[0.2], half_width=0.1, x=0)
    trial = make_trial(1, speed, curve=[0.2], half_width=0.1, x=1)
    trial = replace(trial, outcome=stopped(stopped_for))
    assert reasons.counts(History([baseline, trial], space)) == {reason: 1}


def test_slow_poor_and_close_trials_have_different_reasons(make_trial, baseline, space):
    half = {"half_width": 0.1}
    trials = [
        baseline,
        make_trial(1, 40, 0.1, x=1, **half),
        make_trial(2, 9, 0.1, x=2, **half),
        make_trial(3, 10.1, 0.2, x=3, half_width=0.9),
        make_trial(4, 20, x=4, stopped=True, **half),
        make_trial(5, 5, x=5, stopped=True, **half),
    ]
    assert reasons.summary(History(trials, space)) == (
        "of 5 other trials, 1 ran faster but lost quality, 1 ran no faster and lost quality, "
        "1 ran faster by too little to be sure, 1 stopped early because another trial is faster, "
        "1 ran no faster"
    )
    assert reasons.summary(History([baseline], space)) == "nothing else was tried"


def test_a_shorter_training_is_faster_by_its_length(make_trial, planned):
    whole = planned.baseline_config
    trials = [
        make_trial(0, 10, curve=[0.3], half_width=0.1, **whole),
        make_trial(1, 10, curve=[0.2], half_width=0.1, **{**whole, "length": whole["length"] // 2}),
    ]
    assert reasons.summary(History(trials, planned)) == "of 1 other trial, 1 ran faster but lost quality"


def test_under_same_training_quality_is_not_judged(make_trial, baseline, space):
    same = space.revised(objective={"select": "same-training"})
    alike = make_trial(1, 9, 0.1, half_width=0.1, x=0, precision="bf16")
    trials = [baseline, alike, make_trial(2, 90, 0.2, half_width=0.1, x=1)]
    assert reasons.counts(History(trials, same)) == {Reason.SLOWER: 1, Reason.ANOTHER: 1}


@pytest.mark.parametrize("where", [{"device": "another"}, {"revision": "another"}])
def test_a_trial_on_another_device_or_code_is_named_so(make_trial, baseline, space, where):
    other = make_trial(1, 99, 0.2, half_width=0.1, x=1)
    other = replace(other, measurement=replace(other.measurement, **where))
    assert reasons.counts(History([baseline, other], space)) == {Reason.ELSEWHERE: 1}


def test_too_few_steps_leave_the_speed_unmeasured(make_trial, baseline, space):
    trials = [baseline, make_trial(1, 99, 0.2, x=1), make_trial(2, 99, 0.1, x=2)]
    assert reasons.counts(History(trials, space)) == {Reason.UNSURE: 1, Reason.QUALITY: 1}


def test_a_completed_trial_is_explained_by_its_fault(make_trial, baseline, space):
    poor = make_trial(1, 99, 0.1, half_width=0.1, x=1)
    large = make_trial(2, 99, 0.2, half_width=0.1, x=2, peak=96, limit=100)
    curve = [replace(point, chance=0.2) for point in baseline.measurement.curve]
    guess = make_trial(3, 99, 0.2, half_width=0.1, x=3)
    guess = replace(guess, measurement=replace(guess.measurement, curve=tuple(curve)))
    winner = make_trial(4, 99, 0.2, half_width=0.1, x=4)
    history = History([baseline, poor, large, guess, winner], space)
    assert reasons.explain(poor, history) == "its bleu_4 0.1000 is below the required 0.1900"
    assert reasons.explain(large, history) == "it used 96% of the memory limit, more than the allowed 85%"
    assert reasons.explain(guess, history) == "its quality 0.2000 is not above chance (0.2000)"
    assert [reasons.explain(t, history) for t in (baseline, winner)] == ["", ""]


def test_a_trial_is_explained_by_its_end_or_its_broken_constraint(make_trial, space):
    constrained = space.revised(objective={"constraints": {"rouge_l": ">= 0.2"}})
    trials = [
        make_trial(0, 10, curve=[0.2], half_width=0.1, x=0, scores={"rouge_l": 0.3}),
        make_trial(1, 30, 0.2, half_width=0.1, x=1, scores={"rouge_l": 0.1}),
        make_trial(2, failure="oom"),
        replace(make_trial(3), outcome=None),
    ]
    history = History(trials, constrained)
    broken = "rouge_l is 0.1, and must be >= 0.2"
    assert [reasons.explain(t, history) for t in trials] == ["", broken, "as made", ""]
