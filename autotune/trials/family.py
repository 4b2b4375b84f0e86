"""The process family of a trial, its process and all descendants: listed, suspended, killed."""

import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from multiprocessing.process import BaseProcess

import psutil

from autotune.system import guardian
from autotune.system.cgroup import MemoryGroup
from autotune.system.telemetry import proc_bytes
from autotune.trials import runner

_LOOK_S = 0.02
_REAP_S = 10.0  # limit, because a process stuck in a driver or file system cannot be killed


def members(pid: int) -> list[psutil.Process]:
    """Returns a process and all its descendants, [] if the process is gone."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []


def suspend(pid: int) -> None:
    """Suspends the family of `pid`, except the guard that ends it if the supervisor dies."""
    stopped: set[psutil.Process] = set()
    # Repeated, because a member may have forked meanwhile; parents stop first, so the loop ends.
    while fresh := [member for member in members(pid) if member not in stopped and not _is_guard(member)]:
        _signal(fresh, signal.SIGSTOP)
        stopped.update(fresh)


def resume(pid: int) -> None:
    _signal(members(pid), signal.SIGCONT)


def _signal(family: Iterable[psutil.Process], number: signal.Signals) -> None:
    for member in family:
        with suppress(psutil.Error):
            member.send_signal(number)


def _is_guard(process: psutil.Process) -> bool:
    try:
        return process.cmdline()[-1:] == [runner.GUARD]
    except psutil.Error:  # it is gone
        return False


def waits_for_disk(pid: int) -> bool:
    """Returns True if the process or a descendant is in uninterruptible sleep."""
    with suppress(psutil.Error):
        return any(member.status() == psutil.STATUS_DISK_SLEEP for member in members(pid))
    return False


def held_bytes(pid: int, enough_bytes: int) -> int:
    """Returns the memory of the family of `pid`: private and shared, without pages of mapped files.

    Memory that members share counts once. It may count once per member, which is faster, as long as the sum
    is at most `enough_bytes`.
    """
    pids = [member.pid for member in members(pid)]
    total_bytes = sum(proc_bytes(each, "status", "RssAnon", "RssShmem") for each in pids)
    if total_bytes <= enough_bytes:
        return total_bytes
    return sum(proc_bytes(each, "smaps_rollup", "Pss_Anon", "Pss_Shmem") for each in pids)


def kill(process: BaseProcess, group: MemoryGroup | None) -> None:
    """Kills a process, its process group, and its control `group` if it has one.

    The process has no process group of its own in its first moments, so it is killed by itself first.
    Descendants that left the process group are still in the control group.
    """
    inside = [member.pid for member in members(process.pid or 0)] + (group.pids() if group else [])
    shared = guardian.shared_memory(inside)
    if process.is_alive():
        process.kill()
        process.join(_REAP_S)
    if process.pid:  # killpg(0) would kill this process's own group
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    if group is not None:
        group.end()
    _await_end(process.pid or 0)
    guardian.remove_shared_memory(shared)


def _await_end(leader: int) -> None:
    """Waits until a killed process group is gone, since its members hold GPU memory until then."""
    deadline_s = time.monotonic() + _REAP_S
    while group_of(leader) and time.monotonic() < deadline_s:
        time.sleep(_LOOK_S)


def group_of(leader: int) -> list[int]:
    """Returns the live processes in the process group of `leader`, which may itself be dead."""
    return [pid for pid in psutil.pids() if _is_of_group(pid, leader)]


def _is_of_group(pid: int, leader: int) -> bool:
    try:
        return os.getpgid(pid) == leader and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except (ProcessLookupError, psutil.Error):
        return False
