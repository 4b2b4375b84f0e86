"""A trial's process and all that it has started: found, suspended, ended."""

import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path

import psutil

from autotune.system import guardian
from autotune.system.memory_group import MemoryGroup
from autotune.trials import runner

_LOOK_S = 0.02
_REAP_S = 10.0  # a process that a driver or a file system holds cannot be killed, nor waited for


def members(pid: int) -> list[psutil.Process]:
    """A process and all that it has started; none where it is gone."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []


def suspend(pid: int) -> None:
    """Stops the family of `pid` where it stands, but not the guard that must end it when nothing else can."""
    stopped: set[psutil.Process] = set()
    # Again, because one may have been born meanwhile; parents come first, so that this ends.
    while fresh := [one for one in members(pid) if one not in stopped and not _is_guard(one)]:
        _signal(fresh, signal.SIGSTOP)
        stopped.update(fresh)


def go_on(pid: int) -> None:
    """Lets the family of `pid` continue."""
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


def held_bytes(pid: int, enough_bytes: int) -> int:
    """The memory that the family of `pid` holds: its own and shared, but no pages of mapped files.

    What several of them share counts once; up to `enough_bytes` it may count for each, which is asked sooner.
    """
    pids = [one.pid for one in members(pid)]
    held = sum(_bytes(one, "status", "RssAnon", "RssShmem") for one in pids)
    if held <= enough_bytes:
        return held
    return sum(_bytes(one, "smaps_rollup", "Pss_Anon", "Pss_Shmem") for one in pids)


def anonymous_bytes(pid: int) -> int:
    """What a process holds of its own, and shares with processes forked from it; 0 where it is gone."""
    return _bytes(pid, "status", "RssAnon")


def _bytes(pid: int, file: str, *names: str) -> int:
    """The sum of figures in a file of /proc/`pid`."""
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/{file}").read_text(errors="replace").splitlines()
        return 1024 * sum(int(line.split()[1]) for line in lines if line.partition(":")[0] in names)
    return 0


def end(process: BaseProcess, group: MemoryGroup | None) -> None:
    """Kills a process, which has no group of its own in its first moments, and then what it started.

    Those that have left its process group are still in its control group, where it has one.
    """
    inside = [one.pid for one in members(process.pid or 0)] + (group.pids() if group else [])
    shared = guardian.shared_memory(inside)
    if process.is_alive():
        process.kill()
        process.join(_REAP_S)
    if process.pid:  # 0 would mean the group of this very process
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    if group is not None:
        group.end()
    _await_end(process.pid or 0)
    guardian.remove_shared_memory(shared)


def _await_end(leader: int) -> None:
    """Waits for a process group that was killed: till they are gone, its members hold a GPU's memory, too."""
    deadline_s = time.monotonic() + _REAP_S
    while group_of(leader) and time.monotonic() < deadline_s:
        time.sleep(_LOOK_S)


def group_of(leader: int) -> list[int]:
    """The processes that are alive in the group of `leader`, which may have died before them."""
    return [pid for pid in psutil.pids() if _is_of_group(pid, leader)]


def _is_of_group(pid: int, leader: int) -> bool:
    try:
        return os.getpgid(pid) == leader and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except (ProcessLookupError, psutil.Error):
        return False
