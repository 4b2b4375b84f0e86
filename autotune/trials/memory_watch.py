"""Watches, from outside, the memory of a trial and of the machine, and the kernel's kills for memory."""

import time
from contextlib import suppress

import psutil

from autotune.system import cgroup, devices
from autotune.system.cgroup import MemoryGroup
from autotune.system.telemetry import machine_memory, proc_bytes
from autotune.trials import family

LOOK_S = 0.5


class MemoryWatch:
    """Enforces a memory limit on a trial's process family, and detects the signs of a lack of memory."""

    def __init__(self, limit_bytes: int | None) -> None:
        self.group = MemoryGroup.create()
        self._limit_bytes = limit_bytes  # on top of the memory that the trial is forked with
        self._is_capped = False  # by the kernel; otherwise `excess_bytes` says when to end the trial
        self._shared_group = cgroup.own_group()
        self._tightest_group = cgroup.tightest_group()  # finding it takes longer than reading it
        self._kills = self._counted_kills()
        self._seen_s = 0.0
        self._killed_s: float | None = None
        self.memory_share = 0.0  # of the machine or container, in use at the last look

    @property
    def is_alone(self) -> bool:
        """True if OOM kills are counted for this trial alone, not for all trials of a search."""
        return self.group is not None

    def begin(self, pid: int) -> None:
        """Starts to watch the trial `pid`, which has just been forked, and sets its limit."""
        if self._limit_bytes is None:
            return
        with suppress(psutil.Error):
            self._limit_bytes += proc_bytes(psutil.Process(pid).ppid(), "status", "RssAnon")
        if self.group is not None:
            with suppress(OSError):
                self.group.cap(self._limit_bytes)
                self._is_capped = True

    def look(self) -> bool:
        """Updates `memory_share` and the OOM kills, at most every half second; returns True if it did."""
        now_s = time.monotonic()
        if now_s - self._seen_s < LOOK_S:
            return False
        # Read before a process dies: afterwards its memory is free again.
        self.memory_share, self._seen_s = machine_memory(self._tightest_group).used_share, now_s
        if self._killed_s is None and self.is_alone and self.kernel_killed():
            self._killed_s = now_s
        return True

    def has_missed_a_kill(self) -> bool:
        """Returns True if the trial goes on, five seconds after the kernel killed one of its processes."""
        return self._killed_s is not None and time.monotonic() - self._killed_s > 5.0

    def excess_bytes(self, pid: int) -> int:
        """Returns the memory of the family of `pid` if above a limit not enforced by the kernel, else 0."""
        # A process that failed to join the group is not capped by it.
        is_kept_by_kernel = self._is_capped and self.group is not None and pid in self.group.pids()
        if self._limit_bytes is None or is_kept_by_kernel:
            return 0
        held_bytes = family.held_bytes(pid, self._limit_bytes)
        return held_bytes if held_bytes > self._limit_bytes else 0

    def kernel_killed(self) -> bool:
        """Returns True if the kernel has made an OOM kill in the trial's group, or else in the shared one."""
        return self._counted_kills() > self._kills

    def _counted_kills(self) -> int:
        if self.group is not None:
            return cgroup.kills(self.group.directory)
        return 0 if self._shared_group is None else cgroup.kills(self._shared_group, below=False)


class GpuWatch:
    """Watches the memory on the GPUs of a trial. `gpus` may be 0 for none; below 1 the GPU is shared."""

    def __init__(self, gpus: float, longest_s: float = 10.0) -> None:
        self._gpus, self._longest_s = gpus, longest_s
        self._before_bytes = devices.used_bytes() if gpus else 0
        self._family: set[int] = set()
        self._is_known = False  # whether NVML reports the same process IDs as seen here

    def note(self, pid: int) -> None:
        """Notes the processes of the trial `pid`. Call it while the trial runs and just before it ends."""
        if self._gpus:
            self._family.update(member.pid for member in family.members(pid))
            self._family.update(family.group_of(pid))
            self._is_known |= self._is_holding()

    def wait(self) -> None:
        """Waits until the driver has freed the memory of the trial, at most for `longest_s`."""
        deadline_s = time.monotonic() + self._longest_s
        while self._gpus and time.monotonic() < deadline_s:
            if self._is_known or self._gpus < 1:
                is_held = self._is_holding()
            else:  # with foreign process IDs the memory in use decides; a desktop's own use fluctuates
                is_held = devices.used_bytes() > self._before_bytes + 64 * 2**20
            if not is_held:
                return
            time.sleep(0.05)

    def _is_holding(self) -> bool:
        return not self._family.isdisjoint(devices.held_bytes())
