"""When a GPU has done what it was given: a training that runs ahead of it is made to wait now and then."""

from __future__ import annotations

import sys
import time
from typing import Any

_WAIT_EVERY_S, _WAIT_EVERY = 0.5, 16  # and steps: short ones may all be given to a GPU within half a second
_clock_s = time.monotonic  # kept here: a script that replaces the module's clock replaces its own alone


class Pace:
    """Asks the GPU that a process uses, where it uses one, whether its last step has ended.

    It is made to wait rarely, because a training that waits loses the time in which both work; only at first
    more often, or a short one would show nothing.
    """

    def __init__(self) -> None:
        self._waited_s, self._unwaited, self._wait_every = 0.0, 0, 1

    def has_settled(self) -> bool:
        """Whether now is when the last step has ended."""
        cuda = gpu()
        if cuda is None:
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
        """Starts the timing anew."""
        self._wait_every = 1


def gpu() -> Any:
    """torch.cuda where this process uses it and may ask it now, else None."""
    cuda: Any = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or not cuda.is_initialized() or cuda.is_current_stream_capturing():
        return None
    return cuda


def is_capturing() -> bool:
    """Whether what is done now is only recorded, into a CUDA graph."""
    cuda: Any = getattr(sys.modules.get("torch"), "cuda", None)
    return cuda is not None and cuda.is_initialized() and bool(cuda.is_current_stream_capturing())


def cap(cuda: Any, cap_bytes: int) -> None:
    """Lets the allocator of every GPU have at most `cap_bytes`."""
    for index in range(cuda.device_count()):
        total_bytes = cuda.get_device_properties(index).total_memory  # NVML's is more
        cuda.set_per_process_memory_fraction(min(1.0, cap_bytes / total_bytes), index)
