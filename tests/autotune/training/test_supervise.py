"""Attempts at a training that follow each other, and which of them is its end."""

from types import SimpleNamespace

import pytest

from autotune.core.measurement import Measurement
from autotune.core.trial import Failure, Outcome, Status
from autotune.training import supervise
from autotune.trials import alone, failures
from autotune.trials.progress import Phase
from autotune.trials.reported import Report

KILLED = failures.lost("killed by SIGKILL")
PASSING = failures.of_exception(RuntimeError("CUDA error: unspecified launch failure"))
SHORT = failures.failed(Failure.OOM, "CUDA out of memory")
COMPLETED = Outcome(Status.COMPLETED)
SETTINGS = {"micro_batch_size": 8, "accumulation_steps": 1}


@pytest.fixture
def run(monkeypatch):
    """Runs attempts that end so; returns the outcome, the reports that were heard and how it was resumed."""
    monkeypatch.setattr(supervise, "_sleep", lambda *_: None)

    def call(*outcomes, retries=3, is_stopping=lambda heard, gone_on: False):
        ends, heard, gone_on = iter(outcomes), [], []

        def reports(*_):
            shown = Measurement(samples=100)
            yield Report(0, Phase.TRAINING, 1.0, shown)
            yield Report(0, Phase.TRAINING, 1.0, shown, outcome=next(ends))

        monkeypatch.setattr(alone, "reports", reports)
        last = supervise.run(
            lambda changes: SimpleNamespace(settings=SETTINGS | changes),
            server=None,
            retries=retries,
            hear=heard.append,
            going_on=lambda _, how: gone_on.append(how),
            is_stopping=lambda: is_stopping(heard, gone_on),
        )
        return last.outcome, heard, gone_on

    return call


def test_a_training_goes_on_until_an_attempt_is_its_end(run):
    outcome, heard, gone_on = run(KILLED, PASSING, SHORT, COMPLETED)
    assert outcome == COMPLETED
    assert [report.outcome for report in heard if report.outcome] == [KILLED, PASSING, SHORT, COMPLETED]
    halved = {"micro_batch_size": 4, "accumulation_steps": 2}
    assert [dict(how.changes) for how in gone_on] == [{}, {}, halved]


def test_without_getting_further_it_is_tried_so_often_and_no_more(run):
    outcome, heard, gone_on = run(*[KILLED] * 5, retries=2)
    assert (outcome, len(heard), len(gone_on)) == (KILLED, 6, 2)


def test_out_of_the_machines_memory_it_is_halved_once_waiting_has_not_helped(run):
    machine = failures.killed_inside("its loader's worker has ended")
    outcome, _, gone_on = run(*[machine] * 6, COMPLETED, retries=2)
    assert outcome == COMPLETED
    four, two = ({"micro_batch_size": 8 // n, "accumulation_steps": n} for n in (2, 4))
    assert [dict(how.changes) for how in gone_on] == [{}, {}, four, {}, {}, two]
    assert all(how.wait_s for how in gone_on if not how.changes)


def test_what_was_halved_is_retried_as_often_as_before(run):
    outcome, _, gone_on = run(SHORT, PASSING, PASSING, COMPLETED, retries=2)
    assert outcome == COMPLETED
    assert [bool(how.changes) for how in gone_on] == [True, False, False]


@pytest.mark.parametrize("fault", [KILLED, PASSING, SHORT, failures.lost("it received a SIGTERM")])
def test_a_fault_while_it_is_asked_to_stop_leaves_a_training_that_can_be_gone_on_with(run, fault):
    """As where a whole job is ended: its every process gets the signal."""
    outcome, _, gone_on = run(fault, is_stopping=lambda heard, _: len(heard) == 2)
    assert outcome == Outcome(Status.INTERRUPTED, reason=fault.reason)
    assert gone_on == []


@pytest.mark.parametrize("end", [COMPLETED, failures.failed(Failure.DIVERGED, "the loss is nan")])
def test_an_end_is_one_although_it_was_asked_to_stop(run, end):
    assert run(end, is_stopping=lambda heard, _: len(heard) > 0)[0] == end


def test_who_is_asked_to_stop_between_two_attempts_begins_none(run):
    outcome, heard, _ = run(KILLED, COMPLETED, is_stopping=lambda _, gone_on: len(gone_on) > 0)
    assert (outcome.status, len(heard)) == (Status.INTERRUPTED, 2)
