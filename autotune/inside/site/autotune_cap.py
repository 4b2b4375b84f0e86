"""Caps the GPU memory of a script, in each of its processes on the GPU that this one uses."""

from __future__ import annotations

import os
import sys
from typing import Any, Iterable  # noqa: UP035 - for Python 3.8

import autotune_gpu
import autotune_wire
from autotune_imports import attempt, replace


def attach(torch: Any, optimizer: Any, cap_bytes: int) -> None:
    """Caps the allocator as soon as the script uses a GPU; `optimizer` is torch's class of them."""
    cap = _Cap(torch.cuda, cap_bytes)

    def select(set_device: Any, device: Any) -> None:
        set_device(device)
        attempt(cap.select, torch.cuda)

    def make(init: Any, *args: Any, **kwargs: Any) -> None:
        init(*args, **kwargs)
        attempt(cap.use, torch.cuda)  # whose model is there by now

    torch.cuda._lazy_call(lambda: attempt(cap.open, torch.cuda))
    replace(torch.cuda, "set_device", select)
    replace(optimizer, "__init__", make)


class _Cap:
    """The cap of this process, set on all its GPUs if it is alone.

    Capping a GPU opens a context on it. If the training has several processes, each caps only its own GPU:
    that of its local rank, or else the first one that it selects or has its model on.
    """

    def __init__(self, cuda: Any, cap_bytes: int) -> None:
        self._cuda, self._cap_bytes, self._is_set = cuda, cap_bytes, False

    def open(self, cuda: Any) -> None:
        gpus, rank = range(cuda.device_count()), os.environ.get("LOCAL_RANK", "")
        if rank.isdecimal() and int(rank) in gpus:
            self._set([int(rank)])
        elif len(gpus) == 1 or not _is_one_of_several():
            self._set(gpus)

    def select(self, cuda: Any) -> None:
        if not self._is_set and cuda.is_initialized():
            self._set([cuda.current_device()])

    def use(self, cuda: Any) -> None:
        if self._is_set or not cuda.is_initialized():
            return
        gpu = autotune_gpu.busiest(cuda)
        if cuda.max_memory_reserved(gpu):
            self._set([gpu])

    def _set(self, gpus: Iterable[int]) -> None:
        self._is_set = True
        autotune_gpu.cap(self._cuda, self._cap_bytes, gpus)


def _is_one_of_several() -> bool:
    """Returns True in a rank of a distributed training, and in a process that a script has spawned."""
    processes: Any = sys.modules.get("multiprocessing.process")
    is_spawned = processes is not None and processes.parent_process() is not None
    return is_spawned or autotune_wire.world_size() > 1
