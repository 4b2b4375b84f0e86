"""Runs inside a trial's process: applies caps, runs the workload, sends its records and the verdict."""

import ctypes
import faulthandler
import inspect
import json
import math
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, BinaryIO

from autotune.core.errors import has_trace
from autotune.core.record_names import COMPILING, QUEUED, STANDS_FOR
from autotune.core.trial import Failure, Outcome, Status
from autotune.inside import stop_request
from autotune.inside.inbox import Inbox, trial_environment
from autotune.inside.messages import GpuLostError, Stamped
from autotune.inside.site.autotune_figures import compilations, host_bytes
from autotune.inside.site.autotune_wire import plain
from autotune.system.cgroup import MemoryGroup
from autotune.trials import failures
from autotune.trials.check import Check
from autotune.trials.cuda import Cuda
from autotune.trials.order import Order
from autotune.trials.pushed import InboxListener
from autotune.trials.step_flops import StepFlops
from autotune.workloads import registry
from autotune.workloads.base import Fit

STACK_SIGNAL = signal.SIGUSR1  # makes the process write the stack of every thread into its log
_PR_SET_PDEATHSIG = 1
_HELD_EVERY_S = 1.0
_clock_s = time.monotonic  # bound here, because a workload may patch time.monotonic

# A member of the trial's process group that kills the group when its input ends, that is when the supervisor
# dies, however it dies. Loader workers and a workload's other children do not watch for that, and the fork
# server may be dead by then: Ray kills an actor's children with the actor.
GUARD = "trap '' USR1 TERM; while read -r _; do :; done; kill -s KILL 0"


def run(order: Order, pipe: Connection, output: Connection, group: MemoryGroup | None) -> None:
    """Runs `order` in this process and sends its records, and at the end its verdict: {"outcome": ...}.

    A message is a line of JSON. Printed text goes to `output`; the process joins the control `group`.
    """
    if group is not None:
        with suppress(OSError):  # removed, if the parent is gone
            group.join()
    signal.signal(signal.SIGTERM, stop_request.note_signal)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is left to the driver
    gpus = Cuda(order.limits.gpus, order.limits.allocator_bytes)
    guard: object = None
    with os.fdopen(pipe.fileno(), "wb", closefd=False) as messages:
        try:
            guard = _become_independent(output)
            fit = registry.load(order.workload).fit
            gpus.open()
            count = _Count(order, messages, _RecordFigures(gpus, _Memory(order)))
            outcome = _drive(fit, order, count, partial(_give_up, messages, order, gpus))
        except BaseException as error:  # noqa: BLE001 - whatever ended it is the verdict
            outcome = _failed(error, order, gpus)
        _conclude(messages, outcome)
    del guard


def _give_up(messages: BinaryIO, order: Order, gpus: Cuda, error: BaseException) -> None:
    """Sends the verdict on `error` and ends the process, whatever its other threads do."""
    _conclude(messages, _failed(error, order, gpus))
    os._exit(0)


def _failed(error: BaseException, order: Order, gpus: Cuda) -> Outcome:
    """Logs the traceback of `error`, unless a command has printed its own, and returns the verdict.

    The trial's GPU may be gone, which then explains any error.
    """
    cap_share = host_bytes("VmData") / resource.getrlimit(resource.RLIMIT_DATA)[0]  # 0 or less without a cap
    _limit_memory(None)  # room to report the error
    with suppress(OSError):  # a full disk takes no log either; the verdict goes through the pipe
        if has_trace(error):
            traceback.print_exception(error)
    try:
        gpus.open()
    except GpuLostError as lost:
        return failures.from_exception(lost)
    capped = order.limits.caps_process
    return failures.from_exception(error, capped=capped, cap_share=cap_share, gpu=gpus.memory())


def _conclude(messages: BinaryIO, outcome: Outcome) -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    _send(messages, {"outcome": asdict(outcome)})


def _send(messages: BinaryIO, message: Mapping[str, Any]) -> None:
    messages.write(json.dumps(message, default=plain).encode() + b"\n")
    messages.flush()


def _become_independent(output: Connection) -> object:
    """Starts a process session, so that all children can be killed too, and ties the process to its parent.

    Its output goes to `output`, including stacks after a crash or on STACK_SIGNAL. Returns the guard of its
    process group.
    """
    os.setsid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == 1:
        os._exit(1)  # the parent died before prctl
    os.dup2(output.fileno(), sys.stdout.fileno())
    os.dup2(output.fileno(), sys.stderr.fileno())
    output.close()
    faulthandler.enable()
    faulthandler.register(STACK_SIGNAL)
    # Children of a fork server use it by default; a workload's must start as they do outside the tuner.
    multiprocessing.set_start_method(None, force=True)
    supervisor = multiprocessing.parent_process()
    guard = ["/bin/sh", "-c", GUARD]
    return supervisor and subprocess.Popen(guard, stdin=supervisor.sentinel)  # noqa: S603 - a constant


def _drive(
    fit: Fit,
    order: Order,
    count: "_Count",
    give_up: Callable[[BaseException], None],
) -> Outcome:
    """Runs the workload and counts its records until it ends, or should stop.

    A generator yields records. Any other function reports them while it runs, unless it returns an iterator.
    """
    workdir = order.place.work
    workdir.mkdir(exist_ok=True)
    settings = dict(order.settings) if order.given is None else order.given
    variables = trial_environment(
        workdir,
        settings,
        order.ends.samples,
        order.limits.allocator_bytes,
        order.metric.unit,
        gpus=order.limits.gpus,
        whole=order.whole,
    )
    os.environ.update(variables)
    if inspect.isgeneratorfunction(fit):
        return _drain(fit(settings, workdir), count)
    with Inbox() as inbox, InboxListener(inbox, count.count_reported, give_up):
        os.environ.update(inbox.environment())
        returned = fit(settings, workdir)
    if isinstance(returned, Iterator):
        return _drain(returned, count)
    return count.outcome("the workload reported no record", is_stopped=stop_request.is_pending())


def _drain(records: Iterator[Mapping[str, Any]], count: "_Count") -> Outcome:
    """Counts the workload's records one by one until it ends, or should stop.

    A workload that relays another process's records stops by itself, and may have more of them to yield.
    """
    try:
        for yielded in records:
            count.count_yielded(yielded)
            if stop_request.is_pending() and not isinstance(yielded, Stamped):
                close = getattr(records, "close", None)
                if close is not None:
                    close()
                return count.outcome("", is_stopped=True)
    except stop_request.StoppedError:
        return count.outcome("", is_stopped=True)
    return count.outcome("the workload yielded no record", is_stopped=False)


class _Count:
    """Checks the records of a workload, adds figures of the process, and sends them."""

    def __init__(self, order: Order, messages: BinaryIO, watch: "_RecordFigures") -> None:
        self._quality, self._messages, self._watch = order.metric.name, messages, watch
        self._check = Check(order.metric.unit)
        self._last_s = _clock_s()
        self._held: dict[str, Any] = {}  # memory figures last reported by the process that trains

    def count_yielded(self, yielded: Mapping[str, Any]) -> None:
        """Counts a record that came now; a stamped one has the time and the figures of another process."""
        if isinstance(yielded, Stamped):
            figures = self._watch.memory()
            self._held |= {name: yielded[name] for name in figures if name in yielded}
            marks = {name: yielded[name] for name in (COMPILING, QUEUED) if name in yielded}
            stands_for = {STANDS_FOR: yielded.steps} if yielded.steps > 1 else {}
            self._send(yielded.at_s, {**self._check(yielded), **figures, **self._held, **marks, **stands_for})
            return
        at_s, figures = self._watch.at_step_end()
        self._send(at_s, {**self._check(yielded), **figures})

    def count_reported(self, values: Mapping[str, Any], at_s: float, is_queued: bool) -> None:
        """Counts a record reported at `at_s`; `is_queued`: the GPU had not finished the step by then."""
        record = {**self._check(values), **self._watch.figures(at_s)}
        self._send(at_s, record | {QUEUED: True} if is_queued else record)

    def _send(self, at_s: float, record: dict[str, Any]) -> None:
        """Sends a record; its timestamp is clipped to lie between the previous one and now."""
        if self._quality in record:  # slow, but rare, and the step after it is not counted
            record |= self._watch.note_evaluation()
        self._last_s = min(max(at_s, self._last_s), _clock_s())
        _send(self._messages, {**record, "at_s": self._last_s})

    def outcome(self, without_records: str, *, is_stopped: bool) -> Outcome:
        if is_stopped:
            return Outcome(Status.STOPPED, reason="was asked to stop")
        if not self._check.records:
            return failures.failure(Failure.ERROR, without_records)
        return Outcome(Status.COMPLETED)


class _RecordFigures:
    """Reads the figures of the process with each record."""

    def __init__(self, gpus: Cuda, memory: "_Memory") -> None:
        self._gpus, self._memory = gpus, memory
        self._compilations = compilations()
        self._flops = StepFlops()
        self._flops.attach()
        self._held: Mapping[str, Any] = {}
        self._held_s = -math.inf

    def at_step_end(self) -> tuple[float, Mapping[str, Any]]:
        """Returns the time and the figures of the process, marked if the GPU has not finished the step."""
        self._gpus.open()
        is_queued = not self._gpus.has_settled()
        at_s, figures = _clock_s(), self.figures()
        return at_s, {**figures, QUEUED: True} if is_queued else figures

    def memory(self) -> Mapping[str, Any]:
        """Returns the memory of the process, at most a second old: exact enough if another process trains."""
        self._gpus.open()
        if _clock_s() - self._held_s >= _HELD_EVERY_S:
            self._held, self._held_s = self._gpus.figures() or self._memory.figures(), _clock_s()
        return self._held

    def figures(self, until_s: float = math.inf) -> dict[str, Any]:
        """Returns figures of the process, and of its steps up to `until_s`, without waiting for the GPU."""
        self._gpus.open()
        self._flops.attach()
        before, self._compilations = self._compilations, compilations()
        figures = {**(self._gpus.figures() or self._memory.figures()), **self._flops.take(until_s)}
        return {**figures, COMPILING: True} if self._compilations != before else figures

    def note_evaluation(self) -> dict[str, int]:
        """Returns the process's GPU memory outside its allocator, which is slow to query."""
        self._gpus.note_evaluation()
        context_bytes = self._gpus.context_bytes()
        return {"memory_context_bytes": context_bytes} if context_bytes else {}


class _Memory:
    """Caps the host memory of the process, if the order says so, and measures its peak.

    The peak is the highest resident memory, less the memory just after the fork, even if freed within a step.
    Pages of mapped files do not count, since the kernel can reclaim them. Under a cap, the peak is at least
    the amount that the cap counts, which includes memory allocated but never touched.
    """

    def __init__(self, order: Order) -> None:
        self._born_with = host_bytes("VmRSS") - host_bytes("RssFile")
        self._highest = self._peak = 0
        self._data_born_with = host_bytes("VmData") if order.limits.caps_process else None
        if order.limits.host_bytes is not None and order.limits.caps_process:
            _limit_memory(host_bytes("VmData") + order.limits.host_bytes)

    def figures(self) -> dict[str, int]:
        highest = host_bytes("VmHWM")
        if highest > self._highest:  # risen since the last record, with about as many mapped pages as now
            self._highest = highest
            self._peak = max(self._peak, highest - host_bytes("RssFile") - self._born_with)
        if self._data_born_with is not None:
            self._peak = max(self._peak, host_bytes("VmData") - self._data_born_with)
        return {"memory_peak_bytes": self._peak}


def _limit_memory(limit_bytes: int | None) -> None:
    """Caps the private memory of the process; None lifts the cap."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    is_refused = limit_bytes is not None and hard != resource.RLIM_INFINITY and hard < limit_bytes
    soft = hard if limit_bytes is None or is_refused else limit_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
