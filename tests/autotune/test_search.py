"""A search's bookkeeping, with a real study and without Ray: the test runs the trials itself."""

import json
from dataclasses import replace

import pytest

from autotune import study as record
from autotune.machine import Machine, fit_to
from autotune.search import Search, gpu_memory_fraction
from autotune.store import Options, Session
from autotune.study import Plan
from autotune.trial import Failure, Measurement, Outcome, Status, Throughput
from autotune.workloads import Workload

COMPLETED = Outcome(Status.COMPLETED)
OOM = Outcome(Status.FAILED, Failure.OOM, "too big")


class Heard:
    """A listener that writes down what it hears."""

    def __init__(self):
        self.events = []

    def started(self, trial):
        self.events.append(("started", trial.number))

    def progress(self, trial, report):
        self.events.append(("progress", trial.number))

    def ended(self, trial):
        self.events.append(("ended", trial.number, str(trial.outcome)))


@pytest.fixture
def session(tmp_path, space):
    fitted, _ = fit_to(space, Machine(cpus=8))
    return Session.create(tmp_path / "s", fitted, Options(), {})


@pytest.fixture
def begin(session):
    def open_search(trials=5, time_s=None):
        study = record.open_study(session.study_file)
        if record.plan(study) is None:
            record.set_plan(study, Plan(trials, time_s))
        heard = Heard()
        return Search(session, session.space(), Workload("some.module:fit"), study, heard), heard

    return open_search


def report(number, outcome=COMPLETED, speed=10.0, quality=0.2):
    figures = Measurement(throughput=Throughput(speed, 0.1, 10, 1.0), quality=quality)
    return {"number": number, "outcome": outcome.to_dict(), "measurement": figures.to_dict()}


def test_a_search_runs_its_baseline_first_and_as_many_trials_as_planned(begin):
    search, heard = begin(trials=3)
    numbers = []
    while (trial := search.next()) is not None:
        numbers.append(trial.number)
        search.progress(trial.number, report(trial.number, speed=10.0 + trial.number))
    assert numbers[0] == 0
    assert len(numbers) == 3
    assert search.remaining == 0
    assert heard.events[:3] == [("started", 0), ("progress", 0), ("ended", 0, "completed")]


def test_a_failing_baseline_ends_the_search_with_its_reason(begin):
    search, _ = begin()
    search.next()
    search.progress(0, report(0, OOM))
    assert search.is_over()
    assert "the baseline itself failed: too big" in search.stopping
    assert search.next() is None


def test_a_failed_trial_does_not_end_the_search(begin):
    search, heard = begin()
    search.next()
    search.progress(0, report(0))
    second = search.next()
    search.progress(second.number, report(second.number, OOM))
    assert heard.events[-1] == ("ended", second.number, "failed (oom)")
    assert search.next() is not None


def test_a_killed_search_goes_on_with_what_was_running(begin):
    search, _ = begin(trials=3)
    search.next()
    search.progress(0, report(0))
    running = search.next()

    again, _ = begin()
    first = again.next()
    assert (first.number, first.config) == (running.number, running.config)
    again.progress(first.number, report(first.number))
    third = again.next()
    again.progress(third.number, report(third.number))
    assert again.next() is None
    assert sorted({t.number for t in again.trials()}) == sorted(t.number for t in again.trials())
    assert len(again.trials()) == 3


def test_a_verdict_that_nobody_heard_of_counts(begin, session):
    search, _ = begin()
    search.next()
    directory = session.trial_dir(0)
    directory.mkdir(parents=True)
    (directory / "verdict.json").write_text(json.dumps(report(0)))

    again, _ = begin()
    assert again.trials()[0].outcome == COMPLETED
    assert again.next().number != 0


def test_a_trial_whose_supervisor_died_runs_again_but_not_for_ever(begin):
    search, _ = begin()
    trial = search.next()
    search.lose(trial.number, "gone")
    again = search.next()
    assert again == trial
    search.lose(trial.number, "gone again")
    assert search.trials()[0].outcome == Outcome(Status.FAILED, Failure.LOST, "gone again")


def test_an_end_that_is_told_twice_counts_once(begin):
    search, heard = begin()
    search.next()
    search.progress(0, report(0, speed=10.0))
    search.progress(0, report(0, speed=99.0))
    search.lose(0, "late")
    assert search.trials()[0].samples_per_s == 10.0
    assert [e[0] for e in heard.events].count("ended") == 1


def test_a_part_of_a_gpu_leaves_room_for_every_context():
    total = 8 * 2**30
    assert gpu_memory_fraction(1.0, total) is None
    assert gpu_memory_fraction(0.0, None) is None
    for trials in (2, 4):
        kept = gpu_memory_fraction(1 / trials, total)
        assert 0 < kept * total * trials + trials * 600 * 2**20 <= total + 1


def test_a_disk_fault_is_no_trials_end(begin):
    search, heard = begin()
    search.next()
    fault = Outcome(Status.INTERRUPTED, reason="x: cannot be written: No space left on device")
    search.progress(0, report(0, fault))
    assert search.is_over()
    assert search.fault == fault.reason
    assert heard.events[-1] == ("ended", 0, "interrupted")
    assert [t.outcome for t in search.trials()] == [None]
    again, _ = begin()
    assert again.next().number == 0


def test_time_runs_out_across_runs(begin, session):
    search, _ = begin(time_s=1000.0)
    assert not search.is_over()
    study = record.open_study(session.study_file)
    record.set_plan(study, replace(record.plan(study), spent_s=1000.1))
    again, _ = begin()
    assert again.is_over()
    assert again.stopping == "the time is up"
    assert again.next() is None


def test_an_order_has_all_that_a_trial_needs(begin, session):
    search, _ = begin()
    trial = search.next()
    order = search.order(trial, device_memory_bytes=None)
    assert order.settings == {**session.space().baseline, **trial.config}
    assert order.quality == "bleu_4"
    assert order.samples == 20000
    assert json.loads(json.dumps(order.to_dict())) == order.to_dict()
