"""Control groups (v1 and v2): the CPU and memory limits of a container, and a group of its own per trial."""

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from autotune.system import guardian

_ROOT = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")
_COUNT = itertools.count()


@dataclass(frozen=True)
class GroupMemory:
    """A memory limit, and its use without the page cache that the kernel would reclaim first."""

    limit_bytes: int
    used_bytes: int

    @property
    def used_share(self) -> float:
        return self.used_bytes / self.limit_bytes


def cpu_quota() -> float | None:
    """Returns the tightest CPU quota in CPUs, None if there is no quota."""
    quotas = []
    for group in _groups("cpu"):
        text = _read(group / "cpu.max")
        if not text:
            text = f"{_read(group / 'cpu.cfs_quota_us')} {_read(group / 'cpu.cfs_period_us')}"
        match text.split():
            case [quota, period] if quota.isdigit() and int(quota):  # "max" in v2, -1 in v1: no quota
                quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def memory() -> GroupMemory | None:
    """Returns the tightest memory limit and its use, None if there is no limit."""
    group = tightest_group()
    return None if group is None else memory_of(group)


def tightest_group() -> Path | None:
    """Returns the group with the tightest memory limit, None if there is no limit."""
    limits = {g: limit for g in _groups("memory") if (limit := _limit_bytes(g)) is not None}
    return min(limits, key=lambda group: limits[group], default=None)


def own_group() -> Path | None:
    """Returns the group that counts this process's memory, None if it is not visible."""
    return next(_groups("memory"), None)


def group_for_trials() -> Path | None:
    """Returns the group in which this process can create memory groups, None if there is none."""
    for group in _groups("memory"):
        is_ours = os.access(group, os.W_OK) and os.access(group / "cgroup.procs", os.W_OK)
        if is_ours and (not is_v2(group) or "memory" in _read(group / "cgroup.subtree_control").split()):
            return group
        # In v2 a group holds either processes or groups: look above, unless a trial would escape a limit.
        limits = (_read(group / name) for name in ("memory.max", "memory.high", "cpu.max"))
        if not is_v2(group) or any(limit and limit.split()[0] != "max" for limit in limits):
            return None
    return None


def is_v2(group: Path) -> bool:
    return (group / "cgroup.controllers").exists()


def kills(group: Path, *, below: bool = True) -> int:
    """Returns how many processes of a group ran out of memory and were killed; in v2 also those `below`."""
    events = "memory.events" if below else "memory.events.local"
    return _figures(group / (events if is_v2(group) else "memory.oom_control")).get("oom_kill", 0)


def _groups(controller: str) -> Iterator[Path]:
    """Yields the directories of this process's groups for `controller`, from its own to the outermost."""
    for line in _read(_MEMBERSHIP).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top = _ROOT / controller if controllers else _ROOT  # v2 has one tree and names no controller
        group = top / path.lstrip("/")
        # In a container without its own cgroup namespace this is the host's path, which is not mounted.
        yield from (g for g in (group, *group.parents) if g.is_relative_to(top) and g.is_dir())


def memory_of(group: Path) -> GroupMemory | None:
    """Returns the memory limit of a group and its use, None if it has no limit."""
    limit_bytes = _limit_bytes(group)
    used = _read(group / "memory.current") or _read(group / "memory.usage_in_bytes")
    if limit_bytes is None or not used.isdigit():
        return None
    figures = _figures(group / "memory.stat")
    droppable_bytes = figures.get("total_inactive_file", figures.get("inactive_file", 0))  # v1 has both
    return GroupMemory(limit_bytes, max(0, int(used) - droppable_bytes))


def _limit_bytes(group: Path) -> int | None:
    limit = _read(group / "memory.max") or _read(group / "memory.limit_in_bytes")
    # Without a limit, v1 has the largest number of whole pages, and v2 has "max".
    return int(limit) if limit.isdigit() and int(limit) < 2**60 else None


def _figures(file: Path) -> dict[str, int]:
    """Returns the figures of a file that has a name and a number in each line."""
    return {name: int(figure) for name, figure in (line.split() for line in _read(file).splitlines())}


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii").strip()
    except OSError:
        return ""


@dataclass(frozen=True)
class MemoryGroup:
    """The control group in `directory`; a process that joins brings its later children along."""

    directory: Path

    @classmethod
    def create(cls) -> Self | None:
        """Creates a group without a limit; returns None if this process may not create one."""
        place = group_for_trials()
        if place is None:
            return None
        guardian.remove_groups(place)
        directory = place / f"{guardian.GROUP}{os.getpid()}-{next(_COUNT)}"
        try:
            directory.mkdir()
        except OSError:
            return None
        return cls(directory)

    def join(self) -> None:
        """Puts this process into the group; raises OSError if it may not."""
        self._set("cgroup.procs", 0)

    def cap(self, limit_bytes: int) -> None:
        """Makes the kernel kill members above `limit_bytes`, swap included; raises OSError if it cannot."""
        if is_v2(self.directory):
            self._set("memory.max", limit_bytes)
            self._set("memory.swap.max", 0)
        else:
            self._set("memory.limit_in_bytes", limit_bytes)
            self._set("memory.memsw.limit_in_bytes", limit_bytes)  # memory and swap together

    def _set(self, name: str, value: int) -> None:
        file = self.directory / name
        if file.exists():  # absent in a kernel without swap
            file.write_text(str(value), encoding="ascii")

    def pids(self) -> list[int]:
        """Returns the processes in the group, [] if it has been removed."""
        return guardian.processes_in(self.directory)

    def end(self) -> None:
        """Kills the processes of the group and removes it."""
        guardian.end_all(self.pids, timeout_s=2.0)
        guardian.remove_group(self.directory)
