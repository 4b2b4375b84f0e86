"""A trial's memory from outside: what its family holds, what the kernel kills, how full the machine is."""

import time
from contextlib import suppress
from pathlib import Path

import psutil

from autotune.system import cgroup
from autotune.system.memory_group import MemoryGroup
from autotune.trials import family

LOOK_S = 0.5
_NOTICE_S = 5.0  # for a trial to notice that one of its processes has been killed, and to say what that was


class MemoryWatch:
    """Keeps a trial's family within `limit_bytes` of memory, and knows the signs of a lack of memory.

    The limit, None for no limit, is on top of what the trial is born with. Where it can have a control group
    of its own the kernel enforces the limit; else `excess_bytes` says when to end it.
    """

    def __init__(self, limit_bytes: int | None) -> None:
        self.group = MemoryGroup.made()
        self._limit_bytes = limit_bytes
        self._is_capped = False
        self._shared_group = cgroup.own_group()
        self._tightest_group = cgroup.tightest_group()  # to look for it takes longer than to ask it
        self._kills = self._counted_kills()
        self._seen_s = 0.0
        self._killed_s: float | None = None
        self.memory_share = 0.0  # of the machine's, or the container's, that was in use at the last look

    @property
    def is_alone(self) -> bool:
        """Whether the kernel's kills are counted for this trial alone, and not for all of a search."""
        return self.group is not None

    def begin(self, pid: int) -> None:
        """Sets the limit of the trial `pid`, which has just been forked."""
        if self._limit_bytes is None:
            return
        with suppress(psutil.Error):
            self._limit_bytes += family.anonymous_bytes(psutil.Process(pid).ppid())
        if self.group is not None:
            with suppress(OSError):
                self.group.cap(self._limit_bytes)
                self._is_capped = True

    def look(self) -> bool:
        """Notes how full the machine is, unless it did so just now, and returns whether it did.

        Once a process has died of it, the machine is full no longer.
        """
        now_s = time.monotonic()
        if now_s - self._seen_s < LOOK_S:
            return False
        self.memory_share, self._seen_s = _memory_share(self._tightest_group), now_s
        if self._killed_s is None and self.is_alone and self.kernel_killed():
            self._killed_s = now_s
        return True

    def has_missed_a_kill(self) -> bool:
        """Whether the kernel has killed one of the trial's processes, and it continues regardless."""
        return self._killed_s is not None and time.monotonic() - self._killed_s > _NOTICE_S

    def excess_bytes(self, pid: int) -> int:
        """What the family of `pid` holds, where that is more than it may and the kernel lets it; else 0."""
        if self._limit_bytes is None or self._is_kept_by_kernel(pid):
            return 0
        held_bytes = family.held_bytes(pid, self._limit_bytes)
        return held_bytes if held_bytes > self._limit_bytes else 0

    def _is_kept_by_kernel(self, pid: int) -> bool:
        """Whether the kernel enforces the limit on `pid`, which may have failed to join the group."""
        return self._is_capped and self.group is not None and pid in self.group.pids()

    def kernel_killed(self) -> bool:
        """Whether the kernel has killed for memory in the trial's own control group since the trial began.

        Where it has none: in the one in which all trials of a search are.
        """
        return self._counted_kills() > self._kills

    def _counted_kills(self) -> int:
        if self.group is not None:
            return self.group.kills()
        return 0 if self._shared_group is None else cgroup.kills(self._shared_group, below=False)


def _memory_share(container: Path | None) -> float:
    """The share of the machine's memory that is in use, or of a `container`'s if that is larger."""
    machine = psutil.virtual_memory()
    share = 1 - machine.available / machine.total
    group = None if container is None else cgroup.memory_of(container)
    return max(share, group.used_bytes / group.limit_bytes) if group else share
