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
        self._family: frozenset[int] = frozenset()

    def note(self, pid: int) -> None:
        """Takes note of who belongs to the trial `pid`, which is about to end."""
        if self._gpus:
            self._family |= {*(one.pid for one in family.members(pid)), *family.group_of(pid)}

    def wait(self) -> None:
        """Returns when the driver has taken back what the trial had, or after ten seconds."""
        deadline_s = time.monotonic() + _LONGEST_S
        while self._gpus and self._is_held() and time.monotonic() < deadline_s:
            time.sleep(_LOOK_S)

    def _is_held(self) -> bool:
        """By whom it is held, or by how much where the trial has its GPUs to itself: ids may not compare."""
        if not self._family.isdisjoint(gpu_holders.held_bytes()):
            return True
        return self._gpus >= 1 and gpu_holders.used_bytes() > self._before_bytes + _SLACK_BYTES
