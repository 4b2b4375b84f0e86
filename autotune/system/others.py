"""CPU time taken by processes outside this search, read from the kernel's clocks."""

import os
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

from autotune.system import guardian

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# Columns of a CPU in /proc/stat (proc_stat(5)): user, nice, system, idle, iowait, irq, softirq, steal. Guest
# time follows, which user and nice already include.
_BUSY, _ALL = (0, 1, 2, 5, 6, 7), range(8)


class CpuTime(NamedTuple):
    """CPU seconds of a process, and of its descendants that have ended and were waited for."""

    own_s: float
    reaped_s: float


Clocks = Mapping[psutil.Process, CpuTime]


class _Reading(NamedTuple):
    at_s: float
    busy_s: float
    all_s: float
    clocks: Clocks


def search_root(process: psutil.Process | None = None) -> psutil.Process | None:
    """Returns the root process of a process's search, its driver; None in a cluster that the user named."""
    is_in_cluster = False
    process = process or psutil.Process()
    for parent in process.parents():
        with suppress(psutil.Error):
            if guardian.__file__ in parent.cmdline():
                return parent.parent()
            is_in_cluster |= parent.name() == "raylet"
    return None if is_in_cluster else process  # in a cluster, its processes have no common root


class Others:
    """Samples the load of others, kernel and stolen time included, on the CPUs that this process may use."""

    def __init__(self, top: psutil.Process | None) -> None:
        self._top = top  # the search's root process; None: no figures
        self._before: _Reading | None = None
        self.below: list[psutil.Process] = []  # the search's processes at the last sample, parents first
        self._ahead_s = 0.0  # how far the search's clocks are ahead of the CPUs'

    def sample(self) -> dict[str, float]:
        """Returns `others_cpu_percent` (100: one CPU busy) since the last sample, and `allowed_cpus`."""
        if self._top is None:
            return {}
        cpus = os.sched_getaffinity(0)
        before = self._before
        busy_s, all_s = busy_seconds(Path("/proc/stat").read_text(encoding="ascii"), cpus)
        clocks = {}
        with suppress(psutil.Error):
            for process in (self._top, *self._top.children(recursive=True)):
                with suppress(psutil.Error):
                    times = process.cpu_times()
                    reaped_s = times.children_user + times.children_system
                    clocks[process] = CpuTime(times.user + times.system, reaped_s)
        self._before, self.below = _Reading(time.monotonic(), busy_s, all_s, clocks), list(clocks)
        if before is None or self._before.all_s <= before.all_s:  # clocks may stand still in a sandbox
            return {}
        spent_s = search_spent_s(before.clocks, self._before.clocks)
        left_s = self._before.busy_s - before.busy_s - spent_s - self._ahead_s
        # They disagree by two seconds at most: they are read one by one, and CPU clocks tick coarsely.
        self._ahead_s = min(2.0, max(0.0, -left_s))
        seconds = self._before.at_s - before.at_s
        return {"others_cpu_percent": 100 * max(0.0, left_s) / seconds, "allowed_cpus": float(len(cpus))}


def busy_seconds(stat: str, cpus: Collection[int]) -> tuple[float, float]:
    """Returns the busy and the total seconds of all `cpus` since boot, from the text of /proc/stat."""
    busy = total = 0
    wanted = {f"cpu{number}" for number in cpus}
    for name, *ticks in (line.split() for line in stat.splitlines() if line.startswith("cpu")):
        if name in wanted:
            busy += sum(int(ticks[column]) for column in _BUSY)
            total += sum(int(ticks[column]) for column in _ALL)
    return busy / _TICKS_PER_S, total / _TICKS_PER_S


def search_spent_s(before: Clocks, now: Clocks) -> float:
    """Returns the CPU seconds that a process family took between two readings of its clocks."""
    nothing = CpuTime(0.0, 0.0)
    alive_s = sum(spent.own_s - before.get(p, nothing).own_s for p, spent in now.items())
    reaped_s = sum(spent.reaped_s - before.get(p, nothing).reaped_s for p, spent in now.items())
    # The kernel adds all the time of an ended process to the parent that waits for it, known time included.
    known_s = sum(sum(spent) for p, spent in before.items() if p not in now)
    return alive_s + max(0.0, reaped_s - known_s)
