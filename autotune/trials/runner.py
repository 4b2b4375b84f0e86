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
from contextlib import contextmanager, suppress
from dataclasses import asdict
from multiprocessing.connection import Connection
from typing import Any, BinaryIO

from autotune.core.errors import has_trace
from autotune.core.trial import Outcome
from autotune.inside import stop_request
from autotune.inside.inbox import Inbox, trial_environment
from autotune.inside.messages import GpuLostError, Message, Reported, ScriptError, Stamped
from autotune.inside.site import autotune_wire as wire
from autotune.inside.site.autotune_figures import host_bytes
from autotune.system.cgroup import MemoryGroup
from autotune.trials import failures
from autotune.trials.cuda import Cuda
from autotune.trials.order import Order
from autotune.trials.sending import RecordSender, limit_memory, send
from autotune.workloads import registry
from autotune.workloads.base import Fit

STACK_SIGNAL = signal.SIGUSR1  # makes the process write the stack of every thread into its log

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

    def give_up(error: BaseException) -> None:
        _conclude(messages, _failed(error, order, gpus))
        os._exit(0)  # whatever the other threads do

    with os.fdopen(pipe.fileno(), "wb", closefd=False) as messages:
        try:
            guard = _become_independent(output)
            fit = registry.load(order.workload).fit
            gpus.open()
            sender = RecordSender(order, messages, gpus)
            outcome = _drive(fit, order, sender, give_up)
        except BaseException as error:  # noqa: BLE001 - whatever ended it is the verdict
            outcome = _failed(error, order, gpus)
        _conclude(messages, outcome)
    del guard


def _failed(error: BaseException, order: Order, gpus: Cuda) -> Outcome:
    """Logs the traceback of `error`, unless a command has printed its own, and returns the verdict."""
    cap_share = host_bytes("VmData") / resource.getrlimit(resource.RLIMIT_DATA)[0]  # 0 or less without a cap
    limit_memory(None)  # room to report the error
    with suppress(OSError):  # a full disk takes no log either; the verdict goes through the pipe
        if has_trace(error):
            traceback.print_exception(error)
    try:
        gpus.open()  # if the GPU is gone, that explains any error
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
    """Starts a process session, tied to the life of the parent; returns the guard of the process group."""
    os.setsid()  # so that all children can be killed too
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
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


def _drive(fit: Fit, order: Order, sender: RecordSender, give_up: Callable[[BaseException], None]) -> Outcome:
    """Runs the workload and counts its records until it ends, or should stop."""
    workdir = order.place.work
    workdir.mkdir(exist_ok=True)
    settings = dict(order.settings) if order.given is None else order.given
    limits, samples, unit = order.limits, order.ends.samples, order.metric.unit
    os.environ[wire.RUNNER] = str(os.getpid())
    os.environ.update(
        trial_environment(
            workdir, settings, samples, limits.allocator_bytes, unit, gpus=limits.gpus, whole=order.whole
        )
    )
    if inspect.isgeneratorfunction(fit):
        return _drain(fit(settings, workdir), sender)
    # Any other function reports its records while it runs, or returns an iterator.
    with Inbox() as inbox, _counting_reports(inbox, sender, give_up):
        os.environ.update(inbox.environment())
        returned = fit(settings, workdir)
    if isinstance(returned, Iterator):
        return _drain(returned, sender)
    return sender.outcome("the workload reported no record", is_stopped=stop_request.is_pending())


def _drain(records: Iterator[Mapping[str, Any]], sender: RecordSender) -> Outcome:
    """Counts the workload's records one by one until it ends, or should stop."""
    try:
        for yielded in records:
            sender.count_yielded(yielded)
            if stop_request.is_pending() and not isinstance(yielded, Stamped):
                if close := getattr(records, "close", None):  # a relay of another process stops by itself
                    close()
                return sender.outcome("", is_stopped=True)
    except stop_request.StoppedError:
        return sender.outcome("", is_stopped=True)
    return sender.outcome("the workload yielded no record", is_stopped=False)


class ReportError(Exception):
    """The workload reported something that cannot be a record."""


@contextmanager
def _counting_reports(
    inbox: Inbox, sender: RecordSender, give_up: Callable[[BaseException], None]
) -> Iterator[None]:
    """Counts reported records in a thread, until the block's are counted; `give_up` must end the process."""
    is_over = threading.Event()

    def listen() -> None:
        message: Message | None = None
        is_told = False
        try:
            while message is not None or not is_over.is_set():
                message = inbox.get(0.1)
                if stop_request.is_pending() and not is_told:
                    is_told = True
                    inbox.tell_to_stop()
                if message is None:
                    continue
                match message.content:
                    case ScriptError(type, text):
                        give_up(ReportError(f"{type}: {text}"))
                    case Reported(record, is_queued):
                        sender.count_reported(record, message.at_s, is_queued)
        except BaseException as error:  # noqa: BLE001 - nobody else would hear of it
            give_up(error)

    thread = threading.Thread(target=listen, name="reports", daemon=True)
    thread.start()
    try:
        yield
    finally:
        inbox.finish()
        is_over.set()
        thread.join()
