"""When the GPU memory of a trial that has ended is back: the next one is not to find it taken."""

import time

from autotune.system import gpu_holders
from autotune.trials import family

_LONGEST_S = 10.0
_LOOK_S = 0.05
_SLACK_BYTES = 64 * 2**20  # a desktop's use moves by so much at any time


class GpuWatch:
    """Watches the GPUs that a trial has, none of them where it has no `gpus`; below 1 they are shared."""

    def __init__(self, gpus: float) -> None:
        self._gpus = gpus
        self._before_bytes = gpu_holders.used_bytes() if gpus else 0
        self._family: set[int] = set()
        self._is_known = False  # whether NVML calls the trial's processes as they are called here

    def note(self, pid: int) -> None:
        """Notes which processes belong to the trial `pid`: while it runs, and when it is about to end."""
        if self._gpus:
            self._family.update(one.pid for one in family.members(pid))
            self._family.update(family.group_of(pid))
            self._is_known |= self._is_holding()

    def wait(self) -> None:
        """Returns when the driver has taken back what the trial had, or after ten seconds."""
        deadline_s = time.monotonic() + _LONGEST_S
        while self._gpus and self._is_held() and time.monotonic() < deadline_s:
            time.sleep(_LOOK_S)

    def _is_held(self) -> bool:
        """By what holds memory; where ids do not compare by how much is held, unless others may hold it."""
        if self._is_known or self._gpus < 1:
            return self._is_holding()
        return gpu_holders.used_bytes() > self._before_bytes + _SLACK_BYTES

    def _is_holding(self) -> bool:
        return not self._family.isdisjoint(gpu_holders.held_bytes())
