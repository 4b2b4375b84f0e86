"""One attempt at running a trial, of a search or alone: its child process, clock, files and outcome.

A trial that was killed is attempted again in the same directory: the records already written there count, and
the workload resumes from its own checkpoint.
"""

import json
import shutil
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from autotune.core import flops
from autotune.core.errors import InputError
from autotune.core.measurement import Measurement
from autotune.core.record_names import NOTE, STANDS_FOR
from autotune.core.trial import Failure, Outcome, Status
from autotune.judging.decisions import stopping
from autotune.judging.decisions.stopping import Threshold
from autotune.storage import identity
from autotune.storage.json_file import JsonFile
from autotune.storage.records import is_break, open_lines, read_records, seconds_of, steps_of
from autotune.system import others, telemetry
from autotune.system.telemetry import Telemetry
from autotune.trials import failures, output
from autotune.trials.child import Child
from autotune.trials.fork_server import ForkServer
from autotune.trials.order import NEVER, Order, should_stop
from autotune.trials.progress import Progress
from autotune.trials.report import TrialReport

_BEATEN_GRACE_S = 5.0  # nothing more that it writes is needed
_THRESHOLDS = JsonFile(Threshold)


class Attempt:
    """A running trial. Call `step` until it reports an outcome, or `stop` to break off and resume later."""

    def __init__(self, order: Order, server: ForkServer) -> None:
        self._order, self._server = order, server
        self._place = order.place
        self._progress = Progress(order.metric, order.settings)
        self._begun_s = self._heard_s = time.monotonic()
        # Of a whole training, a step a second is kept: 100,000 records a day, not millions.
        self._thinner = Thinner(order.metric.name, every_s=1.0 if order.whole else 0.0)
        self._device = telemetry.device()
        self._outcome: Outcome | None = None
        self._note = ""  # a doubt about its records, for the user
        self._records: TextIO | None = None
        self._child: Child | None = None
        self._telemetry: Telemetry | None = None
        self._is_resumed = False
        with interrupted_by_the_disk(self._end):
            self._place.make()
            if order.identity is not None:
                identity.write_identity(self._place, order.identity)
            earlier_s = seconds_of(self._count_each(read_records(self._place)))
            self._begun_s, self._is_resumed = self._begun_s - earlier_s, earlier_s > 0
            self._records = open_lines(self._place.records_file)
            self._outcome = self._conclusion()
            if self._outcome is None:
                mark = {"attempt": time.time(), "clock_s": time.monotonic()}
                self._write(list(self._count_each([mark | ({"node": order.node} if order.node else {})])))
                self._child = Child(order, server)
                self._telemetry = Telemetry(self._child.pid, search=others.search_root())
                self._telemetry.__enter__()

    def _end(self, outcome: Outcome) -> None:
        self._outcome = outcome

    def _count_each(self, records: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Yields the records and counts each, so that the records of weeks are never in memory together."""
        for record in records:
            self._progress.count(record)
            yield record
            if self._order.metric.name in record and self._order.ends.are_reached(self._progress):
                return  # what a workload did while this process was suspended would change the quality

    def step(self, timeout_s: float, is_stopping: Callable[[], bool] = lambda: False) -> TrialReport:
        """Runs for up to `timeout_s`; reports new records, the figures so far, and at the end the outcome."""
        records: list[dict[str, Any]] = []
        with interrupted_by_the_disk(self._end):
            self._poll(timeout_s, records)
            output.bound(self._place.log)
        measured = self._complete(self._progress.live_measurement())
        if self._outcome is None:
            self._end_if_beaten(measured)
        if self._outcome is None and (is_stopping() or should_stop(self._order)):
            with interrupted_by_the_disk(self._end):
                self._interrupt(records)
        report = TrialReport(
            number=self._order.number,
            phase=self._progress.phase(time.monotonic() - self._heard_s),
            elapsed_s=time.monotonic() - self._begun_s - (self._child.suspended_s if self._child else 0.0),
            measurement=measured,
            records=_thin(records, self._order.metric.name),
            telemetry=self._telemetry.latest() if self._telemetry else {},
            note=self._server.note or self._note,
        )
        if self._outcome is not None:
            with interrupted_by_the_disk(self._end):
                if self._outcome.status is not Status.INTERRUPTED:  # an interrupted trial has no verdict yet
                    identity.write_verdict(self._place, self._outcome, self.measurement())
            report = replace(report, outcome=self._outcome, measurement=self.measurement())
            self._close()
        return report

    def _poll(self, timeout_s: float, records: list[dict[str, Any]]) -> None:
        """Adds the records of the next `timeout_s`, or until the trial ends, to `records`."""
        child, deadline = self._child, time.monotonic() + timeout_s
        most = 0 if self._order.whole else self._order.ends.samples
        while child and self._outcome is None and (left_s := deadline - time.monotonic()) > 0:
            records += self._take(child.poll(left_s))
            if (outcome := self._conclusion(child.verdict)) is not None:
                child.stop(self._order.limits.closing_s)
                self._outcome = outcome
            elif most and (fault := self._progress.fault(most, is_first=self._order.number == 0)):
                child.stop(_BEATEN_GRACE_S)
                self._outcome = failures.failure(Failure.ERROR, fault)

    def _conclusion(self, verdict: Outcome | None = None) -> Outcome | None:
        """Returns the outcome if the trial has reached its end, or its workload has ended with `verdict`."""
        if self._order.ends.are_reached(self._progress):
            return self._progress.conclude(Outcome(Status.COMPLETED))
        if verdict is None or self._order.whole:
            return verdict
        concluded, ends = self._progress.conclude(verdict), self._order.ends
        if concluded.status is not Status.COMPLETED:
            return concluded
        if why_not := self._progress.incompleteness(ends.samples if ends.planned else 0):
            return failures.failure(Failure.ERROR, why_not)
        self._progress.ended = True
        return concluded

    def _end_if_beaten(self, measured: Measurement) -> None:
        file = self._order.threshold_file
        threshold = _THRESHOLDS.read(Path(file)) if file else None
        if threshold is None or self._child is None or self._order.identity is None:
            return
        measured = replace(
            measured,
            curve=self._progress.curve,
            shared=self._order.number in threshold.shared,
            telemetry=self._telemetry_summary(),
        )
        samples = self._order.ends.samples or NEVER
        if beaten := stopping.verdict(measured, threshold, samples, self._order.identity.config):
            self._child.stop(_BEATEN_GRACE_S)
            self._outcome = beaten

    def _interrupt(self, records: list[dict[str, Any]]) -> None:
        """Lets the workload write its checkpoint and close; adds the records that it yielded until then."""
        if self._child is None:
            return
        self._outcome = Outcome(Status.INTERRUPTED)  # first: if interrupted here, it does not wait again
        verdict = self._child.stop(self._order.limits.closing_s)
        records += self._take(self._child.poll(0))
        if verdict.status in {Status.STOPPED, Status.INTERRUPTED}:
            self._outcome = Outcome(Status.INTERRUPTED, reason=verdict.reason)
        else:
            self._outcome = self._conclusion(verdict)

    def _take(self, yielded: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        held_bytes = self._telemetry_summary().get("children_uss_bytes")
        children = {} if held_bytes is None else {"memory_children_bytes": int(held_bytes)}
        stamped = [{**record, **children} for record in yielded]
        if stamped:
            self._heard_s = stamped[-1]["at_s"]
        is_over = self._child is None or self._child.verdict is not None
        thinned = self._thinner(stamped) + (self._thinner.rest() if is_over else [])
        records = list(self._count_each(thinned))
        self._write(records)
        for record in records:
            self._note = record.get(NOTE, self._note)
        return records

    def _telemetry_summary(self) -> Mapping[str, float]:
        summary = self._telemetry.summary() if self._telemetry else {}
        # The energy is that of this attempt, and the samples are those of all.
        return {
            name: one for name, one in summary.items() if not (self._is_resumed and name == "gpu_energy_j")
        }

    def measurement(self) -> Measurement:
        limits = self._order.limits
        return replace(
            self._complete(self._progress.measurement()),
            memory_limit_bytes=limits.device_bytes or limits.host_bytes,
            memory_cap_bytes=limits.allocator_bytes,
            telemetry=self._telemetry_summary(),
            resumed=self._is_resumed,
        )

    def _complete(self, measured: Measurement) -> Measurement:
        speed, device = measured.throughput, self._device
        mfu = flops.utilisation(measured.flops_per_sample, speed.samples_per_s, device) if speed else None
        return replace(measured, mfu=mfu, device=device, revision=self._order.revision)

    def stop(self, *, waits: bool = True) -> None:
        """Ends the attempt, to be resumed later; if it `waits`, the workload writes its checkpoint first."""
        if self._child is not None and self._outcome is None:
            self._child.stop(self._order.limits.closing_s if waits else 0.0)
            with interrupted_by_the_disk(self._end):
                self._take(self._child.poll(0))  # yielded before it closed
        self._close()

    def _close(self) -> None:
        """Ends all processes and deletes an ended trial's work directory, since a winner is trained anew."""
        if self._telemetry is not None:
            self._telemetry.__exit__(None, None, None)
        if self._child is not None:
            self._child.kill()
            with suppress(OSError):
                output.bound(self._place.log)
        self._child = None
        if self._records is not None:
            with suppress(OSError):  # every write is flushed, so only a failed one is left
                self._records.close()
        if self._outcome is None or self._order.whole:
            return
        if not self._outcome.leaves_work(keep=self._order.keep_work):
            shutil.rmtree(self._place.work, ignore_errors=True)

    def _write(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Writes records and flushes them: a kill must not lose an evaluation that took minutes."""
        if self._records is not None:
            self._records.writelines(json.dumps(record) + "\n" for record in records)
            self._records.flush()


class Thinner:
    """Passes every evaluation, and one step every `every_s` seconds, with the number that it stands for."""

    def __init__(self, quality: str, every_s: float) -> None:
        self._quality, self._every_s = quality, every_s
        self._first_s: float | None = None
        self._last_s = float("-inf")
        self._held: dict[str, Any] | None = None
        self._samples = self._steps = 0  # of all records so far; since the last one that went through

    def __call__(self, records: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        passed: list[dict[str, Any]] = []
        for record in records:
            if self._is_break(record):  # an evaluation's time begins with the step before it
                passed += self.rest()
            self._steps += steps_of(record) if record["samples"] > self._samples else 0
            self._samples, self._held = record["samples"], record
            at_s = record["at_s"]
            self._first_s = at_s if self._first_s is None else self._first_s
            # The interval grows to its full length in the first hour: short trainings keep all.
            apart_s = self._every_s * min(1.0, (at_s - self._first_s) / 3600.0)
            if self._is_break(record) or at_s - self._last_s >= apart_s:
                self._last_s = at_s
                passed += self.rest()
        return passed

    def _is_break(self, record: Mapping[str, Any]) -> bool:
        return self._quality in record or is_break(record)

    def rest(self) -> list[dict[str, Any]]:
        """Returns the step that is held back, if there is one."""
        record, steps = self._held, self._steps
        self._held, self._steps = None, 0
        if record is None:
            return []
        return [{**record, STANDS_FOR: steps} if steps > 1 else record]


def _thin(records: list[dict[str, Any]], quality: str) -> tuple[dict[str, Any], ...]:
    """Returns every evaluation and at most five other records, evenly spaced, to keep a report small."""
    stride = -(-len(records) // 5) or 1
    last = len(records) - 1
    return tuple(r for i, r in enumerate(records) if quality in r or (last - i) % stride == 0)


@contextmanager
def interrupted_by_the_disk(end: Callable[[Outcome], None]) -> Iterator[None]:
    """Passes `end` an interrupted outcome if a file cannot be written, which is not the trial's fault."""
    try:
        yield
    except OSError as error:
        fault = failures.disk_fault(error, failures.OUR_DISK_ERRNOS)
        if fault is None:
            raise
        end(Outcome(Status.INTERRUPTED, reason=fault))


def run_alone(
    order: Order, server: ForkServer, listen: Callable[[TrialReport], None] | None = None
) -> tuple[Outcome, Measurement]:
    """Runs the trial and returns its outcome and measurement; `listen` gets every report but the last.

    Raises InputError if the trial was interrupted from outside; calling it again resumes the trial.
    """
    with closing(reports(order, server)) as running:
        for report in running:
            if report.outcome is None and listen is not None:
                listen(report)
    outcome = report.outcome or Outcome(Status.INTERRUPTED)
    if outcome.status is Status.INTERRUPTED:
        raise InputError(f"{outcome.reason}; nothing is lost. Fix that, and run the command again")
    return outcome, report.measurement


def reports(
    order: Order, server: ForkServer, is_stopping: Callable[[], bool] = lambda: False
) -> Generator[TrialReport, None, None]:
    """Yields a report every second; the last one carries the outcome.

    If `is_stopping` becomes true, or the generator is closed early, the workload first writes a checkpoint to
    resume from. If both hold, as after a second Ctrl-C, it is killed without waiting for that.
    """
    attempt = Attempt(order, server)
    try:
        while True:
            report = attempt.step(1.0, is_stopping)
            yield report
            if report.outcome is not None:
                return
    finally:
        attempt.stop(waits=not is_stopping())
