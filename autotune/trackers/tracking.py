"""The trackers of a search or training. Each has a thread, so that none can stop or delay what it logs."""

import logging
import queue
import threading
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from autotune.core.errors import printable
from autotune.core.secrecy import without_secrets
from autotune.core.trial import Failure, Outcome, Status
from autotune.judging.decisions.history import History
from autotune.trackers.tracker import Tracker
from autotune.trials import failures
from autotune.trials.report import TrialReport

logger = logging.getLogger(__name__)

_ABANDON_S = 5.0
_MOST_WAITING = 1000

_LOST = Outcome(Status.FAILED, Failure.LOST, "its process was lost")


class Trackers(AbstractContextManager["Trackers"]):
    """Passes every call on to all trackers. At the end of a `with` all is uploaded or on disk."""

    drain_s = 90.0  # the longest wait for uploads

    def __init__(self, trackers: Mapping[str, Tracker], whose: str) -> None:
        self.names, self._whose = frozenset(trackers), whose
        self._workers = [_Worker(tracker, whose) for tracker in trackers.values()]
        self._open: dict[str, TrialReport | None] = {}  # open runs, with the report that has the outcome

    def begin(self, run: str, settings: Mapping[str, Any]) -> None:
        """Starts a run, or an attempt that resumes it."""
        if run not in self._open:
            self._open[run] = None
            self._put("begin", run, settings)

    def log(self, run: str, report: TrialReport) -> None:
        if report.outcome is not None:
            self._open[run] = report
        self._put("log", run, report)

    def end(self, run: str, *, failed: bool = False) -> None:
        """Ends a run with the outcome of its last report; without one, it counts as lost or interrupted."""
        last = self._open.pop(run, None)
        stopped = Outcome(Status.INTERRUPTED, reason=f"the {self._whose} was stopped")
        outcome = (last and last.outcome) or (_LOST if failed else stopped)
        if failed and outcome.status is Status.INTERRUPTED:
            outcome = replace(outcome, status=Status.FAILED)
        self._put("end", run, outcome, last.measurement if last else None)

    def summarise(self, history: History, report_file: Path) -> None:
        """Updates the session's own run, with the report if that file exists."""
        self._put("summarise", history, report_file)

    def _put(self, what: str, *args: Any) -> None:
        for worker in self._workers:
            worker.put(what, *args)

    def break_off(self) -> None:
        """Stops reporting losses, because processes of trackers are about to be killed."""
        for worker in self._workers:
            worker.break_off()

    def __exit__(self, *error: object) -> None:
        """Ends open runs, waits for uploads, and abandons a tracker that hangs."""
        for run in list(self._open):
            self.end(run)
        deadline_s = time.monotonic() + self.drain_s
        for worker in self._workers:
            worker.close(deadline_s)
        for worker in self._workers:
            worker.leave(deadline_s)


class _Worker:
    """Calls the methods of a tracker in order, on a thread; logs only the first exception."""

    def __init__(self, tracker: Tracker, whose: str) -> None:
        self._tracker, self._whose = tracker, whose
        self._waiting: queue.Queue[tuple[str, tuple[Any, ...]] | None] = queue.Queue(_MOST_WAITING)
        self._is_quiet = self._is_broken_off = False
        self._thread = threading.Thread(target=self._call_all, name=tracker.title, daemon=True)
        self._thread.start()

    def put(self, what: str, *args: Any) -> None:
        try:
            self._waiting.put_nowait((what, args))
        except queue.Full:
            self._complain("does not keep up; what comes now is not logged")

    def break_off(self) -> None:
        self._is_quiet = self._is_broken_off = True

    def close(self, deadline_s: float) -> None:
        """Lets the tracker close after all waiting calls, if the queue has room for that by the deadline."""
        with suppress(queue.Full):
            self._waiting.put(("close", ()), timeout=max(0.0, deadline_s - time.monotonic()))
            self._waiting.put(None, timeout=max(0.0, deadline_s - time.monotonic()))

    def leave(self, deadline_s: float) -> None:
        self._thread.join(max(0.0, deadline_s - time.monotonic()))
        if self._thread.is_alive():
            self.break_off()
            hint = self._tracker.abandon()
            self._thread.join(_ABANDON_S)
            logger.warning("%s did not receive everything%s", self._tracker.title, hint)

    def _call_all(self) -> None:
        while (call := self._waiting.get()) is not None:
            what, args = call
            try:
                getattr(self._tracker, what)(*args)
            except Exception as error:  # noqa: BLE001 - no error of a tracker may end a search
                if not failures.disk_fault(error, failures.OUR_DISK_ERRNOS):  # it stops the search by itself
                    self._complain(error_line(error))
                with suppress(Exception):
                    if not self._is_broken_off and self._tracker.recover():
                        getattr(self._tracker, what)(*args)

    def _complain(self, what: str) -> None:
        if not self._is_quiet:
            logger.warning("%s: %s; the %s continues", self._tracker.title, what, self._whose)
        self._is_quiet = True


def error_line(error: Exception) -> str:
    """Returns an error's text as one short line without keys."""
    return " ".join(printable(without_secrets(str(error))).split())[:300] or type(error).__name__
