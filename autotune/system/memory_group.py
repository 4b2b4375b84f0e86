"""A control group of a trial's own: the kernel caps a family's memory in it, and counts its kills."""

import itertools
import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from autotune.system import cgroup
from autotune.system.guardian import GROUP, remove_groups

_COUNT = itertools.count()
_TRIES, _BETWEEN_S = 40, 0.05  # a killed process leaves its group a moment later


@dataclass(frozen=True)
class MemoryGroup:
    """A group in `directory`: a process that joins is in it with all that it starts from then on."""

    directory: Path

    @classmethod
    def made(cls) -> Self | None:
        """A new group without a limit; None where this process may make none."""
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
        """Puts this process into the group. Raises OSError where it may not."""
        self._set("cgroup.procs", 0)

    def cap(self, limit_bytes: int) -> None:
        """Has the kernel kill within the group rather than let it hold more than `limit_bytes`.

        Raises OSError where that cannot be set.
        """
        if cgroup.is_v2(self.directory):
            self._set("memory.max", limit_bytes)
            self._set("memory.swap.max", 0)
        else:
            self._set("memory.limit_in_bytes", limit_bytes)
            self._set("memory.memsw.limit_in_bytes", limit_bytes)  # swap counts

    def _set(self, name: str, value: int) -> None:
        file = self.directory / name
        if file.exists():  # a kernel may know no swap
            file.write_text(str(value), encoding="ascii")

    def kills(self) -> int:
        """How many of its processes the kernel has killed for memory."""
        return cgroup.kills(self.directory)

    def pids(self) -> list[int]:
        """The processes in it; none where it has been removed."""
        with suppress(OSError):
            return [int(pid) for pid in (self.directory / "cgroup.procs").read_text(encoding="ascii").split()]
        return []

    def end(self) -> None:
        """Kills the processes in it, and removes it."""
        for _ in range(_TRIES):
            for pid in self.pids():
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            with suppress(OSError):
                self.directory.rmdir()
            if not self.directory.exists():
                return
            time.sleep(_BETWEEN_S)
