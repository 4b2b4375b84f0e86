"""A trial's process and all that it has started: found, suspended, ended."""

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from multiprocessing.process import BaseProcess

import psutil

from autotune.trials import runner

_REAP_S = 10.0  # a process that a driver or a file system holds cannot be killed, nor waited for


def members(pid: int) -> list[psutil.Process]:
    """A process and all that it has started; nobody where it is gone."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []


def suspend(pid: int) -> None:
    """Stops the family of `pid` where it stands, but not the guard that is to end it when nobody else can."""
    stopped: set[psutil.Process] = set()
    # Again, because one may have been born meanwhile; parents come first, so that this ends.
    while fresh := [one for one in members(pid) if one not in stopped and not _is_guard(one)]:
        _signal(fresh, signal.SIGSTOP)
        stopped.update(fresh)


def go_on(pid: int) -> None:
    """Lets the family of `pid` go on."""
    _signal(members(pid), signal.SIGCONT)


def _signal(family: Iterable[psutil.Process], number: signal.Signals) -> None:
    for one in family:
        with suppress(psutil.Error):
            one.send_signal(number)


def _is_guard(process: psutil.Process) -> bool:
    try:
        return process.cmdline()[-1:] == [runner.GUARD]
    except psutil.Error:  # it is gone
        return False


def waits_for_disk(pid: int) -> bool:
    """Whether a process, or one that it has started, is in a wait that no signal ends."""
    with suppress(psutil.Error):
        return any(one.status() == psutil.STATUS_DISK_SLEEP for one in members(pid))
    return False


def end(process: BaseProcess) -> None:
    """Kills a process, which has no group of its own in its first moments, and then what it started."""
    if process.is_alive():
        process.kill()
        process.join(_REAP_S)
    if process.pid:  # 0 would mean the group of this very process
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
