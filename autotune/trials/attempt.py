"""One attempt at running a trial: its child process, its clock, its files, and what came out of it.

A trial killed in the middle is attempted again in the same directory: the records already written there
count, and the workload resumes from its own checkpoint.
"""

import json
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from autotune.core import flops
from autotune.core.trial import Failure, Measurement, Outcome, Status
from autotune.judging import curves, stopping
from autotune.storage import identity, logs, threshold_file
from autotune.storage.records import NOTE, open_lines, read_records, seconds_of
from autotune.system import others, telemetry
from autotune.system.telemetry import Telemetry
from autotune.trials import failures
from autotune.trials.child import Child, Event
from autotune.trials.fork_server import ForkServer
from autotune.trials.order import Order, is_to_stop
from autotune.trials.progress import Progress
from autotune.trials.reported import Report
from autotune.trials.thinning import Thinner

# To close in, checkpoint written; an evaluation of a whole training may take minutes.
_GRACE_S, _WHOLE_GRACE_S = 60.0, 600.0
_BEATEN_GRACE_S = 5.0  # nothing that it would still write is wanted
_RECORDS_PER_REPORT = 5
_STEPS_APART_S = 1.0  # of a whole training: a day of it has a hundred thousand records, not millions


class Attempt:
    """A running trial. `step` until it reports an outcome; `stop` to break off and resume another day."""

    def __init__(self, order: Order, server: ForkServer) -> None:
        self._order, self._server = order, server
        self._place = order.place
        self._grace_s = _WHOLE_GRACE_S if order.whole else _GRACE_S
        self._progress = Progress(order, order.settings)
        self._started, self._earlier_s = time.monotonic(), 0.0
        self._heard_s = self._started
        self._thinner = Thinner(order.quality, _STEPS_APART_S if order.whole else 0.0)
        self._device = telemetry.device()
        self._outcome: Outcome | None = None
        self._note = ""  # what is doubtful in its records
        self._records: TextIO | None = None
        self._child: Child | None = None
        self._telemetry: Telemetry | None = None
        with interrupted_by_the_disk(self._end):
            self._start(server)

    def _end(self, outcome: Outcome) -> None:
        self._outcome = outcome

    def _start(self, server: ForkServer) -> None:
        self._place.make()
        if self._order.card is not None:
            identity.write_card(self._place, self._order.card)
        self._earlier_s = seconds_of(self._counted(read_records(self._place)))
        self._records = open_lines(self._place.records_file)
        if self._is_enough():
            self._outcome = self._progress.concluded(Outcome(Status.COMPLETED))
            return
        self._progress.restart()
        self._write([{"attempt": time.time(), "clock_s": time.monotonic()}])
        self._child = Child(self._order, server)
        self._telemetry = Telemetry(self._child.pid, search=others.top())
        self._telemetry.__enter__()

    def _counted(self, records: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """The records, each counted as it is taken: those of a training of weeks are never held at once."""
        for record in records:
            self._progress.count(record)
            yield record

    def step(self, timeout_s: float, is_stopping: Callable[[], bool] = lambda: False) -> Report:
        """What happened within `timeout_s`: records, figures so far, and in the end the outcome.

        What `is_stopping` after that ends like a trial whose search has stopped.
        """
        records: list[dict[str, Any]] = []
        with interrupted_by_the_disk(self._end):
            self._poll(timeout_s, records)
            logs.bound(self._place.log)
        shown = self._shown()
        if self._outcome is None:
            self._end_if_beaten(shown)
        if self._outcome is None and (is_stopping() or is_to_stop(self._order)):
            with interrupted_by_the_disk(self._end):
                self._interrupt(records)
        report = Report(
            number=self._order.number,
            phase=self._progress.phase(time.monotonic() - self._heard_s),
            elapsed_s=self._earlier_s + time.monotonic() - self._started,
            measurement=shown,
            records=_thin(records, self._order.quality),
            telemetry=self._telemetry.latest() if self._telemetry else {},
            note=self._server.note or self._note,
        )
        if self._outcome is not None:
            with interrupted_by_the_disk(self._end):
                if self._outcome.status is not Status.INTERRUPTED:  # or else it has not ended
                    identity.write_verdict(self._place, self._outcome, self.measurement())
            report = replace(report, outcome=self._outcome, measurement=self.measurement())
            self._close()
        return report

    def _poll(self, timeout_s: float, records: list[dict[str, Any]]) -> None:
        """Adds the records of the next `timeout_s`, or until the trial has ended, to `records`."""
        child, deadline = self._child, time.monotonic() + timeout_s
        while child and self._outcome is None and (left_s := deadline - time.monotonic()) > 0:
            records += self._take(child.poll(left_s))
            if self._is_enough():
                child.stop(self._grace_s)
                self._outcome = self._progress.concluded(Outcome(Status.COMPLETED))
            elif child.verdict is not None:
                self._outcome = self._ended_early(child.verdict)
            elif not self._order.whole and self._progress.is_overdue(self._order.samples):
                child.stop(_BEATEN_GRACE_S)
                self._outcome = failures.failed(Failure.ERROR, self._overdue())

    def _ended_early(self, verdict: Outcome) -> Outcome:
        """The outcome for a `verdict` that came before the trial had all its samples.

        A training that has come to its own end is complete, if it was evaluated there. One that was planned
        to be longer is not: its settings do not do what the plan says.
        """
        if self._order.whole:
            return verdict
        concluded = self._progress.concluded(verdict)
        if concluded.status is not Status.COMPLETED:
            return concluded
        why_not = self._progress.why_not_whole(self._order.samples if self._order.planned else 0)
        if why_not is None:
            self._progress.end()
            return concluded
        return failures.failed(Failure.ERROR, why_not)

    def _overdue(self) -> str:
        samples, order = self._progress.measurement().samples, self._order
        return (
            f"no record has {order.quality} after {samples} {order.unit}; the workload must yield one that "
            f"has it by {order.samples}, the {order.unit} of a trial"
        )

    def _end_if_beaten(self, shown: Measurement) -> None:
        """Stops what the threshold says need not continue."""
        file = self._order.threshold_file
        threshold = threshold_file.read(Path(file)) if file else None
        if threshold is None or self._child is None:
            return
        shown = replace(shown, curve=self._progress.curve)
        if stopping.verdict(shown, threshold, self._order.samples) is None:
            return
        # Asked only now: adding it up takes time from the trial.
        shown = replace(shown, telemetry=self._telemetry.summary() if self._telemetry else {})
        if beaten := stopping.verdict(shown, threshold, self._order.samples):
            self._child.stop(_BEATEN_GRACE_S)
            self._outcome = beaten

    def _interrupt(self, records: list[dict[str, Any]]) -> None:
        """Lets the workload write its checkpoint, unless it has ended; adds what it yielded before."""
        if self._child is None:
            return
        self._outcome = Outcome(Status.INTERRUPTED)  # interrupted here, too, it does not wait once more
        verdict = self._child.stop(self._grace_s)
        records += self._take(self._child.poll(0))
        if verdict.status in {Status.STOPPED, Status.INTERRUPTED}:
            self._outcome = Outcome(Status.INTERRUPTED, reason=verdict.reason)
        elif self._is_enough():
            self._outcome = self._progress.concluded(Outcome(Status.COMPLETED))
        else:
            self._outcome = self._ended_early(verdict)

    def _take(self, events: Sequence[Event]) -> list[dict[str, Any]]:
        """Counts and writes what the child has yielded."""
        beside = self._held_by_children()
        told = [{**event.record, **beside, "at_s": event.at_s} for event in events]  # the clock is ours
        if told:
            self._heard_s = told[-1]["at_s"]
        is_over = self._child is None or self._child.verdict is not None
        records = self._thinner(told) + (self._thinner.rest() if is_over else [])
        self._write(records)
        for record in records:
            self._progress.count(record)
            self._note = record.get(NOTE, self._note)
        return records

    def _held_by_children(self) -> dict[str, int]:
        """What the workload's own subprocesses were seen to hold at most, where it has any."""
        seen = self._telemetry.summary() if self._telemetry else {}
        held = seen.get("children_uss_bytes")
        return {} if held is None else {"memory_children_bytes": int(held)}

    def _is_enough(self) -> bool:
        curve, fewest = self._progress.curve, self._order.until_learnt
        if self._order.whole and not self._order.samples:
            return False
        return (
            self._progress.evaluated_samples >= self._order.samples
            or (self._order.target is not None and curves.reached(curve, self._order.target) is not None)
            or (fewest > 0 and curves.has_learnt(curve, fewest))
            or (self._order.until_timed and self._progress.has_known_speed())
        )

    def measurement(self) -> Measurement:
        """What the trial showed so far."""
        order, shown = self._order, self._progress.measurement()
        return replace(
            self._known(shown),
            memory_limit_bytes=order.device_memory_bytes or order.memory_limit_bytes,
            memory_cap_bytes=order.memory_cap_bytes,
            telemetry=self._telemetry.summary() if self._telemetry else {},
        )

    def _shown(self) -> Measurement:
        """The figures that are asked for every second."""
        return self._known(self._progress.at_a_glance())

    def _known(self, shown: Measurement) -> Measurement:
        found, device = shown.throughput, self._device
        mfu = flops.utilisation(shown.flops_per_sample, found.samples_per_s, device) if found else None
        return replace(shown, mfu=mfu, device=device, revision=self._order.revision)

    def stop(self, *, waits: bool = True) -> None:
        """Leaves the trial to be resumed; `waits` for the workload to write its checkpoint."""
        if self._child is not None and self._outcome is None:
            self._child.stop(self._grace_s if waits else 0.0)
            with interrupted_by_the_disk(self._end):
                self._take(self._child.poll(0))  # what it yielded before it closed
        self._close()

    def _close(self) -> None:
        """Ends what runs. What a trial that has ended leaves behind goes: its winner is trained anew.

        Of one that has completed it may be asked to stay; of a whole training it always does.
        """
        if self._telemetry is not None:
            self._telemetry.__exit__(None, None, None)
        if self._child is not None:
            self._child.kill()
            with suppress(OSError):
                logs.bound(self._place.log)
        self._child = None
        if self._records is not None:
            with suppress(OSError):  # flushed after every write: what is left is what could not be written
                self._records.close()
        if self._outcome is not None and not self._keeps_work(self._outcome):
            shutil.rmtree(self._place.work, ignore_errors=True)

    def _keeps_work(self, outcome: Outcome) -> bool:
        return self._order.whole or outcome.leaves_work(keep=self._order.keep_work)

    def _write(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Writes records, and flushes them: a kill must not lose an evaluation that took minutes."""
        if self._records is not None:
            self._records.writelines(json.dumps(record) + "\n" for record in records)
            self._records.flush()


def _thin(records: list[dict[str, Any]], quality: str) -> tuple[dict[str, Any], ...]:
    """At most 20 of the training records, evenly, and every evaluation: a report stays small."""
    stride = -(-len(records) // _RECORDS_PER_REPORT) or 1
    last = len(records) - 1
    return tuple(r for i, r in enumerate(records) if quality in r or (last - i) % stride == 0)


@contextmanager
def interrupted_by_the_disk(end: Callable[[Outcome], None]) -> Iterator[None]:
    """What cannot be written down must not continue, and is not the trial's fault: `end` gets its outcome."""
    try:
        yield
    except OSError as error:
        fault = failures.disk_fault(error, failures.OUR_DISK_ERRNOS)
        if fault is None:
            raise
        end(Outcome(Status.INTERRUPTED, reason=fault))
