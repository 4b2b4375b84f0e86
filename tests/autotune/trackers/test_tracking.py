"""A search survives trackers that hang, fail or are slow."""

import threading
import time

import pytest

from autotune.core.measurement import Metric
from autotune.core.trial import Failure, Outcome, Status
from autotune.storage.layout import SessionDir
from autotune.trackers.tracker import Context, Tracker
from autotune.trackers.tracking import Trackers
from autotune.trials.progress import Phase
from autotune.trials.report import TrialReport


class Listener(Tracker):
    """Records its calls, raises the given errors, and waits for `may_go_on`."""

    title = "Listener"

    def __init__(self, place, errors=()):
        super().__init__(Context(SessionDir(place), "s", Metric("bleu_4")))
        self.calls, self.errors, self.recovered = [], list(errors), 0
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def _hear(self, *call):
        self.may_go_on.wait()
        if self.errors:
            raise self.errors.pop()
        self.calls.append(call)

    def begin(self, run, settings):
        self._hear("begin", run)

    def log(self, run, report):
        self._hear("log", run)

    def end(self, run, outcome, measurement):
        self._hear("end", run, outcome.status, outcome.failure)

    def recover(self):
        self.recovered += 1
        return True

    def abandon(self):
        self.may_go_on.set()
        return "; try this"


@pytest.fixture
def listener(tmp_path):
    return Listener(tmp_path)


def report(outcome=None):
    return TrialReport(0, Phase.TRAINING, 1.0, outcome=outcome)


def test_an_open_run_is_begun_once_and_interrupted_at_the_end(listener):
    with Trackers({"listener": listener}, "search") as trackers:
        trackers.begin("0000", {})
        trackers.begin("0000", {})  # Tune has aborted, and was started again
    assert listener.calls == [("begin", "0000"), ("end", "0000", Status.INTERRUPTED, None)]


@pytest.mark.parametrize(
    ("last", "failed", "status", "failure"),
    [
        (None, True, Status.FAILED, Failure.LOST),
        (Outcome(Status.INTERRUPTED), True, Status.FAILED, None),
        (Outcome(Status.STOPPED), False, Status.STOPPED, None),
        (Outcome(Status.FAILED, Failure.OOM), True, Status.FAILED, Failure.OOM),
    ],
)
def test_a_run_ends_with_the_outcome_of_its_last_report(listener, last, failed, status, failure):
    with Trackers({"listener": listener}, "search") as trackers:
        trackers.begin("0000", {})
        trackers.log("0000", report(last))
        trackers.end("0000", failed=failed)
    assert listener.calls[-1] == ("end", "0000", status, failure)


def test_a_call_is_repeated_after_a_recovery_and_reported_once(tmp_path, caplog):
    listener = Listener(tmp_path, [OSError("gone"), OSError("gone")])
    with Trackers({"listener": listener}, "training") as trackers:
        trackers.begin("0000", {})
        trackers.log("0000", report())
    assert [call[0] for call in listener.calls] == ["log", "end"]
    assert caplog.messages == ["Listener: gone; the training continues"]


def test_nothing_is_restarted_after_an_abort(tmp_path, caplog):
    listener = Listener(tmp_path, [OSError("gone")])
    with Trackers({"listener": listener}, "search") as trackers:
        trackers.break_off()
        trackers.begin("0000", {})
    assert (listener.recovered, caplog.messages) == (0, [])


@pytest.mark.slow
def test_a_hanging_tracker_delays_nothing_and_is_abandoned(tmp_path, caplog):
    hanging, other = Listener(tmp_path), Listener(tmp_path)
    hanging.may_go_on.clear()
    begun_s = time.monotonic()
    with Trackers({"hanging": hanging, "other": other}, "search") as trackers:
        trackers.drain_s = 0.5
        for number in range(2000):
            trackers.begin(f"{number:04d}", {})
        assert time.monotonic() - begun_s < 60.0
    assert other.calls
    hanging_says = [line for line in caplog.messages if line.startswith("Listener: does not keep up")]
    assert hanging_says[:1]
    assert "Listener did not receive everything; try this" in caplog.messages
