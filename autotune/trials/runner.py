"""What runs inside a trial's process: the caps, the workload, its records into the pipe, the verdict."""

import ctypes
import faulthandler
import importlib
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
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, BinaryIO

from autotune.core import units
from autotune.core.settings import Setting
from autotune.core.trial import Failure, Outcome, Status
from autotune.system.memory_group import MemoryGroup
from autotune.trials import failures
from autotune.trials.order import Order

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
    stopping = _stop_on_sigterm()
    with os.fdopen(pipe.fileno(), "wb", closefd=False) as messages:
        try:
            guard = _become_independent(output)
            fit = _entry_point(order.entry_point)
            memory = _Memory(order)
            outcome = _drive(fit, order, messages, memory, stopping)
        except BaseException as error:  # noqa: BLE001 - whatever ended it is the verdict
            _lift_memory_limit()
            with suppress(OSError):  # a disk that is full takes no log either; the verdict goes elsewhere
                traceback.print_exc()
            outcome = failures.of_exception(error, capped=order.memory_limit_bytes is not None)
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                stream.flush()
        _send(messages, {"outcome": outcome.to_dict()})
    del guard


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


def _entry_point(name: str) -> Callable[[Mapping[str, Setting], Path], Iterator[Mapping[str, Any]]]:
    module, _, function = name.partition(":")
    fit: Callable[[Mapping[str, Setting], Path], Iterator[Mapping[str, Any]]]
    fit = getattr(importlib.import_module(module), function)
    return fit


def _drive(
    fit: Callable[[Mapping[str, Setting], Path], Iterator[Mapping[str, Any]]],
    order: Order,
    messages: BinaryIO,
    memory: "_Memory",
    stopping: Callable[[], bool],
) -> Outcome:
    """Takes the workload's records one by one until it ends, or is to stop."""
    workdir = order.place.work
    workdir.mkdir(exist_ok=True)
    records = fit(dict(order.settings), workdir)
    check = _Check()
    for yielded in records:
        at_s = _clock_s()
        record = {**check(yielded), **memory.figures()}
        _send(messages, {"at_s": at_s, "record": record})
        if stopping():
            close = getattr(records, "close", None)
            if close is not None:
                close()
            return Outcome(Status.STOPPED, reason="was asked to stop")
    if not check.records:
        return failures.failed(Failure.ERROR, "the workload yielded no record")
    return Outcome(Status.COMPLETED)


class _Check:
    """Refuses a record that is none, and a loss that has stopped being a number."""

    def __init__(self) -> None:
        self.records = 0
        self._samples = 0
        self._non_finite = 0

    def __call__(self, record: object) -> dict[str, Any]:
        if not isinstance(record, Mapping):
            raise TypeError(f"a record must be a mapping, got {type(record).__name__}")
        plain = {str(key): _plain(value) for key, value in record.items()}
        samples = plain.get("samples")
        if not isinstance(samples, int) or isinstance(samples, bool):
            raise TypeError(f"a record's samples must be an int, got {units.shown(samples)}")
        if not 0 <= samples <= _MOST_SAMPLES:
            raise ValueError(f"a record's samples must be from 0 to 2**53, got {units.shown(samples)}")
        if samples < self._samples:
            raise ValueError(f"a record's samples must not decrease, got {samples} after {self._samples}")
        self._samples = samples
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
                f"train_loss was {loss} {self._non_finite} times in a row, at {self._samples} samples"
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
    """The process's memory: capped as the order says, and its peak.

    On a GPU the figures are the CUDA allocator's. On the host the peak is what was resident beyond what the
    process was born with: what a step frees before its record is yielded counts. Pages of files that are
    mapped do not: the kernel takes them back when it needs room. Under a cap it is no less than what the cap
    counts, memory that was asked for and not touched included.
    """

    def __init__(self, order: Order) -> None:
        self._born_with = _status_bytes("VmRSS") - _status_bytes("RssFile")
        self._highest = self._peak = 0
        self._data_born_with = None if order.memory_limit_bytes is None else _status_bytes("VmData")
        if order.memory_limit_bytes is not None:
            _limit_memory(_status_bytes("VmData") + order.memory_limit_bytes)
        if order.gpu_memory_fraction is not None and order.gpu_memory_fraction < 1:
            import torch  # noqa: PLC0415 - a workload need not use it

            if torch.cuda.is_available():
                torch.cuda.set_per_process_memory_fraction(order.gpu_memory_fraction)

    def figures(self) -> dict[str, int]:
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            return {
                "memory_allocated_bytes": torch.cuda.memory_allocated(),
                "memory_reserved_bytes": torch.cuda.memory_reserved(),
                "memory_peak_bytes": torch.cuda.max_memory_reserved(),
                "memory_peak_allocated_bytes": torch.cuda.max_memory_allocated(),
            }
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
