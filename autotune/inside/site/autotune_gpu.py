"""Finds out when a GPU has finished its queue, by occasionally making the training wait for it."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

_WAIT_EVERY_S, _WAIT_EVERY = (
    0.5,
    16,
)  # seconds and steps: within half a second, many short steps may be queued
_clock_s = time.monotonic  # bound here, because a script may patch time.monotonic


class Pace:
    """Finds out whether the last step has ended on the GPU of this process, if it uses one.

    Waits for the GPU are rare, because CPU and GPU cannot overlap during a wait. At first they are more
    frequent, so that a short training has some.
    """

    def __init__(self) -> None:
        self._waited_s, self._unwaited, self._wait_every = 0.0, 0, 1

    def has_settled(self) -> bool:
        """Returns True if the GPU has finished the last step; waits for that now and then."""
        cuda = used_cuda()
        if cuda is None or is_capturing():
            return True
        self._unwaited += 1
        if not cuda.current_stream().query():
            if _clock_s() - self._waited_s < _WAIT_EVERY_S and self._unwaited < self._wait_every:
                return False
            cuda.synchronize()
            self._wait_every = min(2 * self._wait_every, _WAIT_EVERY)
        self._waited_s, self._unwaited = _clock_s(), 0
        return True

    def evaluated(self) -> None:
        """Notes an evaluation, after which waits are frequent again."""
        self._wait_every = 1


def used_cuda() -> Any:
    """Returns torch.cuda if this process uses it, else None."""
    cuda: Any = getattr(sys.modules.get("torch"), "cuda", None)
    return cuda if cuda is not None and cuda.is_initialized() else None


def is_capturing() -> bool:
    """Returns True if work is being captured into a CUDA graph, not executed: nothing may be queried then."""
    cuda = used_cuda()
    return cuda is not None and bool(cuda.is_current_stream_capturing())


def cap(cuda: Any, cap_bytes: int) -> None:
    """Caps the allocator at `cap_bytes`: on the GPU of this process's local rank if it has one, else on all.

    Capping a GPU opens a context on it, and makes it the current one unless that is undone.
    """
    gpus = range(cuda.device_count())
    rank = os.environ.get("LOCAL_RANK", "")
    for index in [int(rank)] if rank.isdecimal() and int(rank) in gpus else gpus:
        total_bytes = cuda.get_device_properties(index).total_memory  # NVML reports more
        with cuda.device(index):
            cuda.set_per_process_memory_fraction(min(1.0, cap_bytes / total_bytes), index)
