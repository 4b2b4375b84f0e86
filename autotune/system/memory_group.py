"""A control group per trial, in which the kernel caps the memory of a process family and counts OOM kills."""

import itertools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from autotune.system import cgroup
from autotune.system.guardian import GROUP, end_all, processes_in, remove_group, remove_groups

_COUNT = itertools.count()
_END_S = 2.0  # limit for killing its processes


@dataclass(frozen=True)
class MemoryGroup:
    """The control group in `directory`; a process that joins brings its later children along."""

    directory: Path

    @classmethod
    def create(cls) -> Self | None:
        """Creates a group without a limit; returns None if this process may not create one."""
        place = cgroup.group_for_trials()
        if place is None:
            return None
        remove_groups(place)
        directory = place / f"{GROUP}{os.getpid()}-{next(_COUNT)}"
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
        if cgroup.is_v2(self.directory):
            self._set("memory.max", limit_bytes)
            self._set("memory.swap.max", 0)
        else:
            self._set("memory.limit_in_bytes", limit_bytes)
            self._set("memory.memsw.limit_in_bytes", limit_bytes)  # memory and swap together

    def _set(self, name: str, value: int) -> None:
        file = self.directory / name
        if file.exists():  # absent in a kernel without swap
            file.write_text(str(value), encoding="ascii")

    def kills(self) -> int:
        """Returns how many processes of the group the kernel has killed for lack of memory."""
        return cgroup.kills(self.directory)

    def pids(self) -> list[int]:
        """Returns the processes in the group, [] if it has been removed."""
        return processes_in(self.directory)

    def end(self) -> None:
        """Kills the processes of the group and removes it."""
        end_all(self.pids, _END_S)
        remove_group(self.directory)
