"""Runs a search in a child process; if Ray dies, in a new one, because the old one may wait for Ray forever.

This process does not import Ray and holds the session's lock all the time. It passes Ctrl-C and SIGTERM on,
and the child ends with it, however it ends. The child has the terminal.
"""

import ctypes
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any, NoReturn

from autotune.core.errors import AutotuneError, SearchAborted
from autotune.sessions import faults
from autotune.space.space import Space
from autotune.storage.lock import Held
from autotune.storage.store import StoredSession, resume_command
from autotune.system import signals
from autotune.system.telemetry import Hardware
from autotune.workloads.base import Workload

MOST_DEATHS = 3  # of Ray in a row, without a trial ending in between
# Both often reach the child too. It ignores them, and gets each once, as another signal.
PASSED_ON = {signal.SIGINT: signal.SIGRTMIN, signal.SIGTERM: signal.SIGRTMIN + 1}
_PR_SET_PDEATHSIG = 1


class RayDied(AutotuneError):  # noqa: N818 - it is an ending: the search continues in a new process
    """Ray has died, and the process that used it has to end."""


def _throw(error: BaseException) -> NoReturn:
    raise error


@dataclass(frozen=True)
class Job:
    session: StoredSession
    shown: Path  # as the user names it
    space: Space
    workload: Workload
    hardware: Hardware
    held: Held  # its lock
    notes: Sequence[str]  # printed first
    more: int = 0  # trials to add to the plan
    time_s: float | None = None  # new time limit, from now on; None: as planned
    as_json: bool = False
    interrupts: Collection[int] = (signal.SIGINT, signal.SIGTERM)  # signals that end the search gracefully
    give_up: Callable[[BaseException], NoReturn] = _throw  # called by any thread, if the others may hang

    @property
    def how_to_go_on(self) -> str:
        return f"nothing is lost; continue with: {resume_command(self.shown)}"


Drive = Callable[[Job], int]


def supervise(job: Job, drive: Drive) -> int:
    """Runs a session to its end, by `drive` in a child process; returns the exit code.

    Raises the error that has ended the search, and SearchAborted if Ray keeps dying.
    """
    deaths, ended = 0, -1
    while True:
        try:
            return _in_child(job, drive)
        except RayDied as death:
            before, ended = ended, sum(t.outcome is not None for t in job.session.study().trials)
            deaths = deaths + 1 if ended == before else 1
            if job.session.cluster is not None:  # not ours to start again
                raise SearchAborted(f"{death}; {job.how_to_go_on}") from None
            if deaths == MOST_DEATHS:
                raise SearchAborted(f"{death}, {deaths} times in a row; {job.how_to_go_on}") from None
            note = f"{death}: it is started again, and the search continues from its study"
            job = replace(job, notes=[note], more=0, time_s=None)


def _in_child(job: Job, drive: Drive) -> int:
    """Runs a session in a child process; returns its exit code, and raises the error that has ended it."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(
        target=_child, name="search", args=(job, drive, sender, os.getpid())
    )
    with receiver, _passing_on(child):
        sender.close()
        child.join()
        with suppress(EOFError):
            raise receiver.recv()
    code = child.exitcode or 0
    if code < 0:
        name = signal.Signals(-code).name
        print(f"autotune: the search was ended by {name}; {job.how_to_go_on}", file=sys.stderr)
    return code if code >= 0 else 128 - code


@contextmanager
def _passing_on(child: ForkProcess) -> Iterator[None]:
    """Starts the child, and passes signals on to it during the block."""
    early: list[int] = []

    def pass_on(number: int, _: Any) -> None:
        if child.pid is None:
            early.append(number)
            return
        with suppress(ProcessLookupError):
            os.kill(child.pid, PASSED_ON[signal.Signals(number)])

    held = {*PASSED_ON, *PASSED_ON.values()}
    with signals.handling(dict.fromkeys(PASSED_ON, pass_on)):
        signal.pthread_sigmask(signal.SIG_BLOCK, held)  # the child unblocks them when it is ready for them
        try:
            child.start()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, held)
        for number in early:
            pass_on(number, None)
        yield


def _child(job: Job, drive: Drive, sender: Connection, parent: int) -> NoReturn:
    die_with(parent)
    for number, passed_on in PASSED_ON.items():
        signal.signal(number, lambda *_: None)
        signal.signal(passed_on, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [*PASSED_ON, *PASSED_ON.values()])

    def give_up(error: BaseException) -> NoReturn:
        """Ends this process even if its threads are waiting."""
        sender.send(error)
        sys.stdout.flush()
        os._exit(1)

    try:
        code = drive(replace(job, interrupts=PASSED_ON.values(), give_up=give_up))
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt) as error:
        if (known := faults.deliberate(error)) is None:
            raise
        sender.send(known)
        code = 1
    sys.exit(code)


def die_with(parent: int) -> None:
    """Makes the kernel kill this process when its `parent` ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent has already ended
        os.kill(os.getpid(), signal.SIGKILL)
