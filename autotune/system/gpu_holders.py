"""What holds memory of the visible GPUs, and how much of them is in use, as far as NVML reports it."""

import os
from collections import Counter
from collections.abc import Callable
from typing import Any

import pynvml

from autotune.system import devices, nvml


def used_bytes() -> int:
    """What is in use of all visible GPUs together; 0 where that cannot be had."""
    return sum(_each(lambda gpu: [int(pynvml.nvmlDeviceGetMemoryInfo(gpu).used)]))


def held_bytes() -> dict[int, int]:
    """The processes that hold memory of a visible GPU, by id, and how much; 0 where NVML does not say.

    In a container these may be other ids than its own.
    """
    held: Counter[int] = Counter()
    for process in _each(pynvml.nvmlDeviceGetComputeRunningProcesses):
        held[process.pid] += process.usedGpuMemory or 0
    return dict(held)


def _each(ask: Callable[[Any], list[Any]]) -> list[Any]:
    """What `ask` finds on all visible GPUs; nothing where one of them cannot be asked."""
    with nvml.library() as found:
        try:
            handles = devices.handles(os.environ.get(devices.VISIBLE)) if found else []
            return [one for handle in handles for one in ask(handle)]
        except (pynvml.NVMLError, pynvml.NVMLLibraryMismatchError):  # the latter of a driver that is too old
            return []
