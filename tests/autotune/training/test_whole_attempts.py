"""Consecutive attempts at a training, and the one that ends it."""

from types import SimpleNamespace

import pytest

from autotune.core.measurement import Measurement
from autotune.core.trial import Failure, Outcome, Shortage, Status
from autotune.storage.layout import TrainingDir
from autotune.training import whole
from autotune.training.whole import Whole, decide
from autotune.trials import attempt, failures
from autotune.trials.progress import Phase
from autotune.trials.report import TrialReport

from .test_plan import PLAN
from .test_whole import TRAINING

KILLED = failures.lost_attempt("killed by SIGKILL")
PASSING = failures.from_exception(RuntimeError("CUDA error: unspecified launch failure"))
SHORT = failures.failure(Failure.OOM, "CUDA out of memory")
COMPLETED = Outcome(Status.COMPLETED)
PLANNED = {"micro_batch_size": 8, "accumulation_steps": 1}


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Runs attempts with these outcomes; returns the final one, the reports, and the decisions to resume."""

    def call(*outcomes, samples=(100,) * 20, retries=3, is_stopping=lambda heard, gone_on: False):
        ends, heard, gone_on = iter(zip(outcomes, samples, strict=False)), [], []

        def reports(*_):
            end, reached = next(ends)
            shown = Measurement(samples=reached)
            yield TrialReport(0, Phase.TRAINING, 1.0, shown)
            yield TrialReport(0, Phase.TRAINING, 1.0, shown, outcome=end)

        monkeypatch.setattr(attempt, "reports", reports)
        monkeypatch.setattr(whole, "_sleep", lambda *_: None)
        training = Whole(TRAINING, PLAN, TrainingDir(tmp_path), screen=None, follow=None)
        training._order = lambda changes: SimpleNamespace(settings=PLANNED | changes)
        training._hear, training._note_resumption = heard.append, lambda _, how: gone_on.append(how)
        last = training._attempts(retries, lambda: is_stopping(heard, gone_on))
        return last.outcome, heard, gone_on

    return call


def test_a_training_goes_on_until_an_attempt_is_its_end(run):
    outcome, heard, gone_on = run(KILLED, PASSING, SHORT, COMPLETED)
    assert outcome == COMPLETED
    assert [report.outcome for report in heard if report.outcome] == [KILLED, PASSING, SHORT, COMPLETED]
    halved = {"micro_batch_size": 4, "accumulation_steps": 2}
    assert [dict(how.changes) for how in gone_on] == [{}, {}, halved]


def test_attempts_without_progress_are_bounded_with_growing_waits(run):
    outcome, heard, gone_on = run(*[KILLED] * 5, retries=3)
    assert (outcome, len(heard)) == (KILLED, 8)
    assert [how.wait_s for how in gone_on] == [2.0, 4.0, 8.0]


def test_attempts_with_progress_are_unlimited(run):
    samples = [*range(100, 2000, 100), 10, 10, 10]  # the furthest progress counts
    outcome, _, gone_on = run(*[KILLED] * len(samples), samples=samples, retries=3)
    assert outcome == KILLED
    assert [how.wait_s for how in gone_on] == [2.0] * 19 + [4.0, 8.0]


def test_if_the_machines_memory_stays_short_the_batch_is_halved(run):
    machine = failures.killed_process("its loader's worker has ended")
    outcome, _, gone_on = run(*[machine] * 6, COMPLETED, retries=2)
    assert outcome == COMPLETED
    four, two = ({"micro_batch_size": 8 // n, "accumulation_steps": n} for n in (2, 4))
    assert [dict(how.changes) for how in gone_on] == [{}, {}, four, {}, {}, two]
    assert all(how.wait_s for how in gone_on if not how.changes)


def test_what_was_halved_is_retried_as_often_as_before(run):
    outcome, _, gone_on = run(SHORT, PASSING, PASSING, COMPLETED, retries=2)
    assert outcome == COMPLETED
    assert [bool(how.changes) for how in gone_on] == [True, False, False]


@pytest.mark.parametrize("fault", [KILLED, PASSING, SHORT, failures.lost_attempt("it received a SIGTERM")])
def test_a_fault_while_stopping_leaves_a_resumable_training(run, fault):
    """Each process gets the signal, as at the end of a cluster's job."""
    outcome, _, gone_on = run(fault, is_stopping=lambda heard, _: len(heard) == 2)
    assert outcome == Outcome(Status.INTERRUPTED, reason=fault.reason)
    assert gone_on == []


@pytest.mark.parametrize("end", [COMPLETED, failures.failure(Failure.DIVERGED, "the loss is nan")])
def test_a_training_that_ends_while_stopping_has_ended(run, end):
    assert run(end, is_stopping=lambda heard, _: len(heard) > 0)[0] == end


def test_no_attempt_begins_after_a_stop(run):
    outcome, heard, _ = run(KILLED, COMPLETED, is_stopping=lambda _, gone_on: len(gone_on) > 0)
    assert (outcome.status, len(heard)) == (Status.INTERRUPTED, 2)


SETTINGS = {"micro_batch_size": 16, "accumulation_steps": 2, "learning_rate": 1e-3}
HALVED = {"micro_batch_size": 8, "accumulation_steps": 4}


def failed(failure, reason="", shortage=None, *, is_passing=False):
    return Outcome(Status.FAILED, failure, reason, shortage, is_passing)


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(Status.COMPLETED),
        failed(Failure.DIVERGED, "the loss is nan"),
        failed(Failure.ERROR, "ValueError: image 7 has no caption"),
        failed(Failure.ERROR, "OSError: [Errno 5] Input/output error"),  # the text does not decide
    ],
)
def test_a_permanent_fault_is_the_end(outcome):
    assert decide(outcome, SETTINGS, 1, most=3) is None


def test_a_transient_fault_is_retried_unchanged():
    found = decide(failed(Failure.ERROR, is_passing=True), SETTINGS, 1, most=3)
    assert found is not None
    assert (dict(found.changes), found.wait_s) == ({}, 2.0)


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(Status.INTERRUPTED, Failure.LOST, "killed by SIGKILL"),
        failed(Failure.TIMEOUT, "no record for 300 s"),
        failed(Failure.OOM, "a loader's worker was killed", Shortage.KILLED_WORKER),
    ],
)
def test_interrupted_and_hung_attempts_are_retried(outcome):
    assert decide(outcome, SETTINGS, 1, most=3) is not None


def test_out_of_memory_halves_the_micro_batch_and_keeps_the_effective_one():
    found = decide(failed(Failure.OOM, "CUDA out of memory"), SETTINGS, 1, most=3)
    assert dict(found.changes) == {"micro_batch_size": 8, "accumulation_steps": 4}
    assert "batch 32 (4 x 8 accumulated) instead of batch 32 (2 x 16 accumulated)" in found.text


@pytest.mark.parametrize(
    ("outcome", "times", "sizes"),
    [
        (failed(Failure.OOM, "killed by the kernel", Shortage.MACHINE), 3, {}),
        (failed(Failure.OOM, "killed by the kernel", Shortage.MACHINE), 4, HALVED),
        (failed(Failure.OOM, "a loader's worker was killed", Shortage.KILLED_WORKER), 3, {}),
        (failed(Failure.OOM, "a loader's worker was killed", Shortage.KILLED_WORKER), 4, HALVED),
        (Outcome(Status.INTERRUPTED, Failure.LOST, "killed by SIGKILL"), 4, None),
        (failed(Failure.TIMEOUT, "no record for 300 s"), 4, None),
    ],
)
def test_short_machine_memory_is_waited_for_before_halving(outcome, times, sizes):
    found = decide(outcome, SETTINGS, times, most=3)
    assert (found and dict(found.changes)) == sizes


@pytest.mark.parametrize(
    "settings",
    [
        {"micro_batch_size": 1, "accumulation_steps": 8},
        {"micro_batch_size": 5, "accumulation_steps": 8},
        {"micro_batch_size": 16},
        {"learning_rate": 1e-3},
    ],
)
def test_a_batch_that_cannot_be_halved_is_the_end(settings):
    assert decide(failed(Failure.OOM, "out of memory"), settings, 1, most=3) is None
