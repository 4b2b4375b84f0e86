"""The memory in use on the visible GPUs, and the processes that hold it, as reported by NVML."""

import os
from collections import Counter
from collections.abc import Callable
from typing import Any

import pynvml

from autotune.system import devices, nvml


def used_bytes() -> int:
    """Returns the memory in use on all visible GPUs together, 0 if unknown."""
    return sum(_query_all(lambda gpu: [int(pynvml.nvmlDeviceGetMemoryInfo(gpu).used)]))


def held_bytes() -> dict[int, int]:
    """Returns the bytes on visible GPUs by process ID, in a container maybe the host's; 0 if unknown."""
    held: Counter[int] = Counter()
    for process in _query_all(pynvml.nvmlDeviceGetComputeRunningProcesses):
        held[process.pid] += process.usedGpuMemory or 0
    return dict(held)


def _query_all(ask: Callable[[Any], list[Any]]) -> list[Any]:
    """Returns what `ask` returns for all visible GPUs, [] if one of them cannot be queried."""
    with nvml.library() as is_available:
        try:
            handles = devices.handles(os.environ.get(devices.VISIBLE)) if is_available else []
            return [one for handle in handles for one in ask(handle)]
        except (pynvml.NVMLError, pynvml.NVMLLibraryMismatchError):  # mismatch: the driver is too old
            return []
