"""Runs inside a trial's process: applies caps, runs the workload, sends its records and the verdict."""

import ctypes
import faulthandler
import inspect
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, BinaryIO, Self

from autotune.core.errors import has_trace
from autotune.core.trial import Outcome
from autotune.inside import stop_request
from autotune.inside.inbox import Inbox, trial_environment
from autotune.inside.messages import GpuLostError, Message, Reported, ScriptError, Stamped
from autotune.inside.site.autotune_figures import host_bytes
from autotune.system.cgroup import MemoryGroup
from autotune.trials import failures
from autotune.trials.cuda import Cuda
from autotune.trials.order import Order
from autotune.trials.sending import HostMemory, RecordFigures, RecordSender, limit_memory, send
from autotune.workloads import registry
from autotune.workloads.base import Fit

STACK_SIGNAL = signal.SIGUSR1  # makes the process write the stack of every thread into its log
_PR_SET_PDEATHSIG = 1
_LOOK_S = 0.1

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
            count = RecordSender(order, messages, RecordFigures(gpus, HostMemory(order)))
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
    limit_memory(None)  # room to report the error
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
    send(messages, {"outcome": asdict(outcome)})


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
    count: RecordSender,
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


def _drain(records: Iterator[Mapping[str, Any]], count: RecordSender) -> Outcome:
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


Take = Callable[[Mapping[str, Any], float, bool], None]


class ReportError(Exception):
    """The workload reported something that cannot be a record."""


class InboxListener:
    """A context that passes each record in the inbox to `take`, with its timestamp and whether it is queued.

    Once this process is asked to stop, so are the clients. Exceptions of `take` go to `fail`, which must
    end the process, because nobody else may notice them. On exit, everything reported so far is taken.
    """

    def __init__(self, inbox: Inbox, take: Take, fail: Callable[[BaseException], None]) -> None:
        self._inbox, self._take, self._fail = inbox, take, fail
        self._is_told = self._is_over = False
        self._thread = threading.Thread(target=self._run, name="reports", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._inbox.finish()
        self._is_over = True
        self._thread.join()

    def _run(self) -> None:
        try:
            self._listen()
        except BaseException as error:  # noqa: BLE001 - nobody else would hear of it
            self._fail(error)

    def _listen(self) -> None:
        message: Message | None = None
        while message is not None or not self._is_over:
            message = self._inbox.get(_LOOK_S)
            if stop_request.is_pending() and not self._is_told:
                self._is_told = True
                self._inbox.tell_to_stop()
            if message is not None:
                self._count(message)

    def _count(self, message: Message) -> None:
        match message.content:
            case ScriptError(type, text):
                raise ReportError(f"{type}: {text}")
            case Reported(record, is_queued):
                self._take(record, message.at_s, is_queued)
