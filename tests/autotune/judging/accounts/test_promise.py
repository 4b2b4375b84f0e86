"""Promises compared with the training that followed."""

import math
from dataclasses import replace

import pytest

from autotune.core.measurement import Evaluation, Measurement, Throughput
from autotune.core.trial import Failure, Outcome, Repeat, Status
from autotune.judging.accounts import promise
from autotune.judging.accounts.promise import Promise, PromiseAnswer
from autotune.judging.decisions import objective
from autotune.judging.decisions.history import History
from autotune.judging.measurement.estimates import Figure
from autotune.space.sections import Objective
from tests.autotune.conftest import curve_of

PROMISED = Promise(
    session="s",
    trial=4,
    samples=1000,
    throughput=Figure(100.0, 98.0, 102.0),
    quality=0.80,
    least=0.76,
    scatter=0.02,
    memory_bytes=100 * 2**20,
    origin=("cpu", "abc"),
)
GOAL = Objective(quality="bleu_4")


def measure(rate=100.0, half=1.0, quality=0.8, at=1000, memory=100 * 2**20):
    throughput = Throughput(rate, half, 500, 60.0)
    curve = (Evaluation(500, 5.0, 0.1), Evaluation(at, 10.0, quality), Evaluation(9000, 90.0, 0.9))
    return Measurement(throughput=throughput, curve=curve, own_peak_bytes=memory)


def answers(measured, promised=PROMISED, goal=GOAL):
    return {one.what: one.answer for one in promise.check(promised, measured, goal, "samples")}


def test_equal_figures_hold():
    assert answers(measure()) == dict.fromkeys(("speed", "quality", "memory"), PromiseAnswer.HELD)


@pytest.mark.parametrize(
    ("rate", "half", "answer"),
    [
        (98.0, 0.5, PromiseAnswer.HELD),
        (130.0, 1.0, PromiseAnswer.HELD),
        (94.0, 4.0, PromiseAnswer.UNDECIDED),
        (96.0, 20.0, PromiseAnswer.UNDECIDED),
        (85.0, 1.0, PromiseAnswer.BROKEN),
        (50.0, None, PromiseAnswer.UNDECIDED),  # three steps have no interval
        (130.0, None, PromiseAnswer.UNDECIDED),
    ],
)
def test_a_speed_is_broken_only_if_surely_slower(rate, half, answer):
    assert answers(measure(rate=rate, half=half))["speed"] is answer


@pytest.mark.parametrize(("rate", "answer"), [(100.0, PromiseAnswer.HELD), (80.0, PromiseAnswer.UNDECIDED)])
def test_a_speed_that_is_reached_holds_despite_a_wide_promised_interval(rate, answer):
    """Once the training reaches the speed, the promised interval does not matter."""
    wide = replace(PROMISED, throughput=Figure(100.0, 75.0, 125.0))
    assert answers(measure(rate=rate, half=4.0), wide)["speed"] is answer


@pytest.mark.parametrize(("rate", "answer"), [(85.0, PromiseAnswer.UNDECIDED), (70.0, PromiseAnswer.BROKEN)])
def test_differences_between_equal_trials_break_no_promise(rate, answer):
    [speed, *_] = promise.check(replace(PROMISED, moved=0.2), measure(rate=rate), GOAL, "samples")
    assert speed.answer is answer
    assert "equal trials of that session were up to 20% apart" in speed.text


@pytest.mark.parametrize(
    ("quality", "answer"),
    [(0.76, PromiseAnswer.HELD), (0.73, PromiseAnswer.UNDECIDED), (0.71, PromiseAnswer.BROKEN)],
)
def test_a_quality_is_broken_only_beyond_the_scatter(quality, answer):
    assert answers(measure(quality=quality))["quality"] is answer


def test_without_a_scatter_no_quality_is_broken():
    promised = replace(PROMISED, scatter=None)
    assert answers(measure(quality=0.1), promised)["quality"] is PromiseAnswer.UNDECIDED


def test_a_loss_is_compared_with_its_highest_allowed_value():
    promised = replace(PROMISED, quality=-2.0, least=-2.1, scatter=0.01)
    goal = Objective(minimize="val_loss")
    assert answers(measure(quality=-2.05), promised, goal)["quality"] is PromiseAnswer.HELD
    _, quality, _ = promise.check(promised, measure(quality=-2.2), goal, "samples")
    text = "val_loss 2.2000 after 1,000 samples, 2.0000 promised, at most 2.1000 required"
    assert (quality.answer, quality.text) == (PromiseAnswer.BROKEN, text)


SOONER = Objective(select="same-quality", target=0.2)


def test_a_target_is_promised_by_the_slowest_run(make_trial, space):
    """The winner may need more samples than the baseline, and less time."""
    baseline = make_trial(0, 5, curve=[0.3, 0.3], micro_batch_size=4)
    fast = make_trial(1, 20, curve=[0.1, 0.1, 0.3, 0.3])
    slow = make_trial(2, 20, curve=[0.1, 0.1, 0.1, 0.1, 0.3, 0.3], repeat=Repeat(1, 1))
    history = History([baseline, fast, slow], space.model_copy(update={"objective": SOONER}))
    found = promise.promised(fast, history, "s")
    assert (found.quality, found.least, found.has_target) == (0.2, 0.2, True)
    assert found.samples == math.ceil(objective.samples_to(slow, 0.2))

    for trial in (fast, slow):  # a training like either one keeps the promise
        [_, quality, *_] = promise.check(found, trial.measurement, SOONER, "samples")
        assert quality.answer is PromiseAnswer.HELD


def test_a_miniature_promises_no_quality_of_the_whole_training(make_trial, planned):
    """There, after as many samples, the learning rate has only begun to fall."""
    trial = make_trial(0, 5, curve=[0.1, 0.3], **planned.baseline_config)
    whole, miniature = (planned.revised(training={"samples": samples}) for samples in (20_000, 40_000))
    assert promise.promised(trial, History([trial], whole), "s").least is not None
    assert promise.promised(trial, History([trial], miniature), "s").least is None


def test_a_target_reached_early_holds():
    promised = replace(PROMISED, samples=450, quality=0.2, least=0.2, scatter=0.01, has_target=True)

    def judge_quality(*qualities):
        measured = replace(measure(), curve=curve_of(qualities))
        _, quality, _ = promise.check(promised, measured, SOONER, "samples")
        return quality.answer, quality.text

    early = "bleu_4 0.2000 reached after 200 samples, promised after 450"
    assert judge_quality(0.1, 0.3, 0.3) == (PromiseAnswer.HELD, early)
    assert judge_quality(0.1, 0.1, 0.1) == (PromiseAnswer.UNDECIDED, "not yet evaluated after 450 samples")
    late = "after 500 samples, 0.2000 promised, at least 0.2000 required"
    assert judge_quality(0.1, 0.1, 0.1, 0.1, 0.19) == (PromiseAnswer.UNDECIDED, f"bleu_4 0.1900 {late}")
    assert judge_quality(0.1, 0.1, 0.1, 0.1, 0.1, 0.3, 0.3) == (PromiseAnswer.BROKEN, f"bleu_4 0.1000 {late}")


def test_a_figure_that_is_not_measured_yet_is_undecided():
    measured = replace(measure(), curve=(Evaluation(500, 5.0, 0.1),))
    found = promise.check(PROMISED, measured, GOAL, "samples")
    assert promise.overall(found, None) is PromiseAnswer.UNDECIDED
    missing = [(one.what, one.text) for one in found if one.answer is PromiseAnswer.UNDECIDED]
    assert missing == [("quality", "not yet evaluated after 1,000 samples")]
    assert answers(Measurement()) == dict.fromkeys(("speed", "quality", "memory"), PromiseAnswer.UNDECIDED)


def test_a_failed_training_never_held():
    found = promise.check(PROMISED, measure(), GOAL, "samples")
    assert promise.overall(found, Outcome(Status.COMPLETED)) is PromiseAnswer.HELD
    assert promise.overall(found, Outcome(Status.FAILED, Failure.DIVERGED)) is PromiseAnswer.UNDECIDED


@pytest.mark.parametrize(
    ("mib", "answer"), [(104, PromiseAnswer.HELD), (160, PromiseAnswer.HELD), (168, PromiseAnswer.BROKEN)]
)
def test_memory_may_exceed_the_promise_slightly(mib, answer):
    assert answers(measure(memory=mib * 2**20))["memory"] is answer


def test_memory_is_that_of_the_training_process_alone():
    """Memory of other processes is not part of the promise."""
    assert answers(replace(measure(), peak_memory_bytes=400 * 2**20))["memory"] is PromiseAnswer.HELD


def test_speed_and_memory_of_another_device_are_not_compared():
    found = promise.check(PROMISED, replace(measure(rate=50.0), device="gpu"), GOAL, "samples")
    judge_quality = {one.what: (one.answer, one.text.partition("; ")[2]) for one in found}
    assert judge_quality == {
        "speed": (PromiseAnswer.UNDECIDED, "promise measured on cpu, trained on gpu"),
        "quality": (PromiseAnswer.HELD, ""),
        "memory": (PromiseAnswer.UNDECIDED, "promise measured on cpu, trained on gpu"),
    }
    assert answers(replace(measure(rate=50.0), device="cpu"))["speed"] is PromiseAnswer.BROKEN


def test_other_code_is_mentioned():
    edited = replace(measure(rate=50.0), device="cpu", revision="abd")
    found = promise.check(PROMISED, edited, GOAL, "samples")
    assert [one.answer for one in found] == [PromiseAnswer.BROKEN, PromiseAnswer.HELD, PromiseAnswer.HELD]
    assert all(one.text.endswith("; promise measured with other code") for one in found)


def test_one_broken_figure_breaks_the_promise():
    found = promise.check(PROMISED, measure(rate=50.0), GOAL, "samples")
    assert promise.overall(found, None) is PromiseAnswer.BROKEN
    assert promise.overall(promise.check(PROMISED, measure(), GOAL, "samples"), None) is PromiseAnswer.HELD
    assert promise.overall([], None) is PromiseAnswer.UNDECIDED


def test_without_figures_nothing_was_promised():
    empty = replace(PROMISED, throughput=None, quality=None, least=None, scatter=None, memory_bytes=None)
    assert promise.check(empty, measure(), GOAL, "samples") == []
