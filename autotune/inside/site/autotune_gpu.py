"""Finds out when a GPU has finished its queue, by occasionally making the training wait for it."""

from __future__ import annotations

import sys
import time
from typing import Any, Iterable  # noqa: UP035 - for Python 3.8

# Seconds, and steps: many short ones may be queued within half a second.
_WAIT_EVERY_S, _WAIT_EVERY = 0.5, 16
_clock_s = time.monotonic  # bound here, because a script may patch time.monotonic


class Pace:
    """Finds out whether the last step has ended on the GPU of this process, if it uses one.

    Waits for the GPU are rare, because CPU and GPU cannot overlap during a wait. At first they are more
    frequent, so that a short training has some.
    """

    def __init__(self) -> None:
        self._waited_s, self._unwaited, self._wait_every = 0.0, 0, 1
        self._gpu: int | None = None

    def has_settled(self) -> bool:
        """Returns True if the GPU has finished the last step; now and then, waits until it has."""
        cuda = used_cuda()
        if cuda is None or is_capturing():
            return True
        self._unwaited += 1
        if self._gpu is None:
            self._gpu = busiest(cuda)
        if not cuda.current_stream(self._gpu).query():
            if _clock_s() - self._waited_s < _WAIT_EVERY_S and self._unwaited < self._wait_every:
                return False
            cuda.synchronize(self._gpu)
            self._wait_every = min(2 * self._wait_every, _WAIT_EVERY)
        self._waited_s, self._unwaited = _clock_s(), 0
        return True

    def evaluated(self) -> None:
        """Notes an evaluation, after which waits are frequent again."""
        self._wait_every, self._gpu = 1, None


def used_cuda() -> Any:
    """Returns torch.cuda if this process uses it, else None."""
    cuda: Any = getattr(sys.modules.get("torch"), "cuda", None)
    return cuda if cuda is not None and cuda.is_initialized() else None


def is_capturing() -> bool:
    """Returns True if work is being captured into a CUDA graph, not executed: nothing may be queried then."""
    cuda = used_cuda()
    return cuda is not None and bool(cuda.is_current_stream_capturing())


def busiest(cuda: Any) -> int:
    """Returns the GPU that holds most of this process's memory, which need not be the current one."""
    gpus = range(cuda.device_count())
    return max(gpus, key=cuda.max_memory_reserved) if len(gpus) > 1 else 0


def cap(cuda: Any, cap_bytes: int, gpus: Iterable[int]) -> None:
    """Caps the allocator on `gpus`; a context is opened on each, and the current GPU stays."""
    for index in gpus:
        total_bytes = cuda.get_device_properties(index).total_memory  # NVML reports more
        with cuda.device(index):
            cuda.set_per_process_memory_fraction(min(1.0, cap_bytes / total_bytes), index)
