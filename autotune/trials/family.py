"""The process family of a trial, its process and all descendants: listed, suspended, killed."""

import os
import signal
import time
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path

import psutil

from autotune.inside.site import autotune_wire as wire
from autotune.system import guardian
from autotune.system.cgroup import MemoryGroup
from autotune.system.telemetry import proc_bytes
from autotune.trials import runner

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
    seen: set[psutil.Process] = set()
    # Repeated, because a member may have forked meanwhile; parents stop first, so the loop ends.
    while fresh := [member for member in members(pid) if member not in seen]:
        seen.update(fresh)
        for member in fresh:
            is_guard = False
            with suppress(psutil.Error):  # unreadable: it is no guard of ours
                is_guard = member.cmdline()[-1:] == [runner.GUARD]
            with suppress(psutil.Error):  # it is gone
                if not is_guard:
                    member.suspend()


def resume(pid: int) -> None:
    for member in members(pid):
        with suppress(psutil.Error):
            member.resume()


def waits_for_disk(pid: int) -> bool:
    """Returns True if the process or a descendant is in uninterruptible sleep."""
    with suppress(psutil.Error):
        return any(member.status() == psutil.STATUS_DISK_SLEEP for member in members(pid))
    return False


def held_bytes(pid: int, enough_bytes: int) -> int:
    """Returns the memory of the family of `pid`: private and shared, without pages of mapped files.

    An upper bound if it is no more than `enough_bytes`.
    """
    pids = [member.pid for member in members(pid)]
    total_bytes = sum(proc_bytes(each, "status", "RssAnon", "RssShmem") for each in pids)
    if total_bytes <= enough_bytes:  # faster, although what members share counts for each
        return total_bytes
    return sum(proc_bytes(each, "smaps_rollup", "Pss_Anon", "Pss_Shmem") for each in pids)


def started_by(pid: int, workdir: Path) -> list[psutil.Process]:
    """Returns what `pid`, the process of the trial in `workdir`, has started, by its environment."""
    found, marks = [], {(wire.RUNNER, str(pid)), (wire.WORKDIR, str(workdir.absolute()))}
    for one in psutil.process_iter():
        with suppress(psutil.Error, OSError):  # of another user, or ended
            if marks <= one.environ().items():
                found.append(one)
    return found


def kill(process: BaseProcess, group: MemoryGroup | None, workdir: Path) -> None:
    """Kills a process, its process group, its control `group` if it has one, and all that they started."""
    family = members(process.pid or 0) if process.is_alive() else []
    inside = [member.pid for member in family] + (group.pids() if group else [])
    shared = guardian.shared_memory(inside)
    if process.is_alive():
        process.kill()  # in its first moments it has no process group of its own
        process.join(_REAP_S)
    if process.pid:  # killpg(0) would kill this process's own group
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    if group is not None:
        group.end()  # some descendants may have left the process group
    # torchrun's workers have sessions of their own, and if the process was killed before, other parents.
    for member in [*family, *started_by(process.pid or 0, workdir)]:
        with suppress(psutil.Error):  # it has ended
            member.kill()
    deadline_s = time.monotonic() + _REAP_S  # until they are gone, its members hold GPU memory
    while group_of(process.pid or 0) and time.monotonic() < deadline_s:
        time.sleep(0.02)
    guardian.remove_shared_memory(shared)


def group_of(leader: int) -> list[int]:
    """Returns the live processes in the process group of `leader`, which may itself be dead."""
    alive = []
    for pid in psutil.pids():
        with suppress(ProcessLookupError, psutil.Error):
            if os.getpgid(pid) == leader and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                alive.append(pid)
    return alive
