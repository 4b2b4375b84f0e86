"""What runs inside a trial's process: the caps, the workload, its records into the pipe, the verdict."""

import ctypes
import faulthandler
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
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from autotune import workloads
from autotune.core import units
from autotune.core.trial import Failure, Outcome, Status
from autotune.storage.records import COMPILING, QUEUED
from autotune.system.memory_group import MemoryGroup
from autotune.trials import cuda, failures
from autotune.trials.cuda import Cuda
from autotune.trials.order import Order
from autotune.workloads.base import Fit

STACK_SIGNAL = signal.SIGUSR1  # makes the process write the stack of every thread into its log
_PR_SET_PDEATHSIG = 1
_NON_FINITE_LOSSES = 3
_MOST_SAMPLES = 2**53  # every whole number up to here is a float
_clock_s = time.monotonic  # kept here: a workload that replaces the module's clock replaces its own alone

# A member of the trial's process group whose input ends when the supervisor does, however that dies; it then
# kills the group. Neither loader workers nor what a workload has started besides watch for that themselves,
# and the fork server may be dead by then: Ray kills an actor's children with the actor.
GUARD = "trap '' USR1 TERM; while read -r _; do :; done; kill -s KILL 0"


class _DivergedError(FloatingPointError):
    """The workload goes on yielding losses that are no numbers."""


def run(order: Order, pipe: Connection, output: Connection, group: MemoryGroup | None) -> None:
    """Runs what is ordered in this process, sends its records and in the end its verdict: {"outcome": ...}.

    A message is a line of JSON. What is printed goes into `output`; the process is in the control `group`.
    """
    if group is not None:
        with suppress(OSError):  # it may have been removed: whoever has started this is gone
            group.join()
    stopping, gpus = _stop_on_sigterm(), Cuda(order.gpus, order.memory_cap_bytes)
    with os.fdopen(pipe.fileno(), "wb", closefd=False) as messages:
        try:
            guard = _become_independent(output)
            fit = workloads.load(order.workload).fit
            gpus.open()
            outcome = _drive(fit, order, messages, _Watch(gpus, _Memory(order)), stopping)
        except BaseException as error:  # noqa: BLE001 - whatever ended it is the verdict
            _lift_memory_limit()
            with suppress(OSError):  # a disk that is full takes no log either; the verdict goes elsewhere
                traceback.print_exc()
            outcome = _explained(error, order, gpus)
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                stream.flush()
        _send(messages, {"outcome": outcome.to_dict()})
    del guard


def _explained(error: BaseException, order: Order, gpus: Cuda) -> Outcome:
    """Why the workload failed with `error`; without its GPU it had to, if it has loaded torch by itself."""
    try:
        gpus.open()
    except failures.GpuLostError as lost:
        return failures.of_exception(lost)
    return failures.of_exception(error, capped=order.caps_process, gpu=gpus.memory())


def _send(messages: BinaryIO, message: Mapping[str, Any]) -> None:
    messages.write(json.dumps(message, default=_scalar).encode() + b"\n")
    messages.flush()


def _become_independent(output: Connection) -> object:
    """A session of its own, so that it can be killed with all that it starts; it dies with its parents.

    Returns the guard of its process group.
    """
    os.setsid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == 1:
        os._exit(1)  # the parent was gone before it could be asked for
    _print_into(output)
    # A forkserver's children start theirs in the same way; a workload's are to start as they do without us.
    multiprocessing.set_start_method(None, force=True)
    supervisor = multiprocessing.parent_process()
    guard = ["/bin/sh", "-c", GUARD]
    return supervisor and subprocess.Popen(guard, stdin=supervisor.sentinel)  # noqa: S603 - a constant


def _print_into(output: Connection) -> None:
    """Makes `output` the process's output, its last words after a crash and its stacks included."""
    os.dup2(output.fileno(), sys.stdout.fileno())
    os.dup2(output.fileno(), sys.stderr.fileno())
    output.close()
    faulthandler.enable()
    faulthandler.register(STACK_SIGNAL)


def _stop_on_sigterm() -> Callable[[], bool]:
    """Whether a SIGTERM has come, which asks to stop after the next record. Ctrl-C is the driver's."""
    noted: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: noted.append(number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return lambda: bool(noted)


def _drive(
    fit: Fit,
    order: Order,
    messages: BinaryIO,
    watch: "_Watch",
    stopping: Callable[[], bool],
) -> Outcome:
    """Takes the workload's records one by one until it ends, or is to stop."""
    workdir = order.place.work
    workdir.mkdir(exist_ok=True)
    records = fit(dict(order.settings) if order.given is None else order.given, workdir)
    check = _Check(order.unit)
    for yielded in records:
        seen = watch()
        record = {**check(yielded), **seen.figures}
        if order.quality in record:  # rarely, and the step after it does not count
            record |= watch.evaluated()
        _send(messages, {"at_s": seen.at_s, "record": record})
        if stopping():
            close = getattr(records, "close", None)
            if close is not None:
                close()
            return Outcome(Status.STOPPED, reason="was asked to stop")
    if not check.records:
        return failures.failed(Failure.ERROR, "the workload yielded no record")
    return Outcome(Status.COMPLETED)


class _Seen(NamedTuple):
    """When a record came, and what the process shows of itself beside it."""

    at_s: float
    figures: Mapping[str, Any]


class _Watch:
    """Looks at the process whenever the workload has yielded."""

    def __init__(self, gpus: Cuda, memory: "_Memory") -> None:
        self._gpus, self._memory = gpus, memory
        self._compilations = cuda.compilations()

    def __call__(self) -> _Seen:
        self._gpus.open()
        is_queued = not self._gpus.has_settled()
        at_s = _clock_s()
        before, self._compilations = self._compilations, cuda.compilations()
        marks = {COMPILING: self._compilations != before, QUEUED: is_queued}
        figures = self._gpus.figures() or self._memory.figures()
        return _Seen(at_s, {**figures, **{name: True for name, is_so in marks.items() if is_so}})

    def evaluated(self) -> dict[str, int]:
        """What the process takes of its GPU beside the allocator; it takes a while to ask."""
        self._gpus.evaluated()
        context_bytes = self._gpus.context_bytes()
        return {"memory_context_bytes": context_bytes} if context_bytes else {}


class _Check:
    """Refuses a record that is none, and a loss that has stopped being a number.

    What a record counts its work in, its `unit`, it has under the name of samples from here on: nothing that
    reads it has to know.
    """

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self.records = 0
        self._samples = 0
        self._non_finite = 0

    def __call__(self, record: object) -> dict[str, Any]:
        if not isinstance(record, Mapping):
            raise TypeError(f"a record must be a mapping, got {type(record).__name__}")
        plain = {str(key): _plain(value) for key, value in record.items() if key not in {COMPILING, QUEUED}}
        what, samples = f"a record's {self._unit}", plain.get(self._unit)
        if not isinstance(samples, int) or isinstance(samples, bool):
            raise TypeError(f"{what} must be an int, got {units.shown(samples)}")
        if not 0 <= samples <= _MOST_SAMPLES:
            raise ValueError(f"{what} must be from 0 to 2**53, got {units.shown(samples)}")
        if samples < self._samples:
            raise ValueError(f"{what} must not decrease, got {samples} after {self._samples}")
        self._samples = plain["samples"] = samples
        self.records += 1
        self._follow_loss(plain)
        return plain

    def _follow_loss(self, record: Mapping[str, Any]) -> None:
        loss = record.get("train_loss")
        if (
            "bad_steps" in record
        ):  # the workload leaves such steps out, and says itself when there are too many
            return
        if isinstance(loss, float):
            self._non_finite = 0 if math.isfinite(loss) else self._non_finite + 1
        if self._non_finite >= _NON_FINITE_LOSSES:
            raise _DivergedError(
                f"train_loss was {loss} {self._non_finite} times in a row, at {self._samples} {self._unit}"
            )


def _plain(value: Any) -> Any:
    """NumPy's and torch's scalars as Python's."""
    return value.item() if hasattr(value, "item") and getattr(value, "ndim", 0) == 0 else value


def _scalar(value: object) -> object:
    """The same for values inside a record's lists and mappings, where nothing else can be sent."""
    plain = _plain(value)
    if plain is value:
        raise TypeError(f"a record's values must be JSON's, got {type(value).__name__}")
    return plain


class _Memory:
    """The process's memory on the host: capped where the order says so, and its peak.

    That is what was resident beyond what the process was born with: what a step frees before its record is
    yielded counts. Pages of files that are mapped do not: the kernel takes them back when it needs room.
    Under a cap it is no less than what the cap counts, memory that was asked for and not touched included.
    """

    def __init__(self, order: Order) -> None:
        self._born_with = _status_bytes("VmRSS") - _status_bytes("RssFile")
        self._highest = self._peak = 0
        self._data_born_with = _status_bytes("VmData") if order.caps_process else None
        if order.memory_limit_bytes is not None and order.caps_process:
            _limit_memory(_status_bytes("VmData") + order.memory_limit_bytes)

    def figures(self) -> dict[str, int]:
        highest = _status_bytes("VmHWM")
        if highest > self._highest:  # since the last record: then the mapped pages were about as many as now
            self._highest = highest
            self._peak = max(self._peak, highest - _status_bytes("RssFile") - self._born_with)
        if self._data_born_with is not None:
            self._peak = max(self._peak, _status_bytes("VmData") - self._data_born_with)
        return {"memory_peak_bytes": self._peak}


def _limit_memory(limit_bytes: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    soft = limit_bytes if hard == resource.RLIM_INFINITY else min(limit_bytes, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _lift_memory_limit() -> None:
    """Room to say what went wrong."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


def _status_bytes(name: str) -> int:
    """A figure of /proc/self/status, 0 where it is not there."""
    with Path("/proc/self/status").open(encoding="ascii", errors="replace") as lines:
        found = next((line for line in lines if line.startswith(f"{name}:")), f"{name}: 0 kB")
    return int(found.split()[1]) * 1024
