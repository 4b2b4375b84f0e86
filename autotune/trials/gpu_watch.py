"""Waits until the GPU memory of an ended trial is free again, so that the next trial can use it."""

import time
from typing import Protocol

from autotune.system import devices
from autotune.trials import family

_LONGEST_S = 10.0
_LOOK_S = 0.05
_SLACK_BYTES = 64 * 2**20  # a desktop's own use fluctuates by so much


class Driver(Protocol):
    """Reports the memory on the visible GPUs, as `devices` does."""

    def used_bytes(self) -> int: ...
    def held_bytes(self) -> dict[int, int]: ...


class GpuWatch:
    """Watches the memory on the GPUs of a trial. `gpus` may be 0 for none; below 1 the GPU is shared."""

    def __init__(self, gpus: float, driver: Driver = devices, longest_s: float = _LONGEST_S) -> None:
        self._gpus, self._driver, self._longest_s = gpus, driver, longest_s
        self._before_bytes = driver.used_bytes() if gpus else 0
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
        while self._gpus and self._is_held() and time.monotonic() < deadline_s:
            time.sleep(_LOOK_S)

    def _is_held(self) -> bool:
        """Returns True if the trial still holds GPU memory.

        Compares process IDs if NVML knows them, otherwise the memory in use, unless the GPU is shared.
        """
        if self._is_known or self._gpus < 1:
            return self._is_holding()
        return self._driver.used_bytes() > self._before_bytes + _SLACK_BYTES

    def _is_holding(self) -> bool:
        return not self._family.isdisjoint(self._driver.held_bytes())
