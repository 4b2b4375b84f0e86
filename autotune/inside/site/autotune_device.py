"""Checks that a training uses its trial's GPU, and caps the memory of a GPU in each of its processes."""

from __future__ import annotations

import os
import sys
from typing import Any, Iterable  # noqa: UP035 - for Python 3.8

import autotune_figures
import autotune_wire
from autotune_imports import attempt, replace

_LONGEST = 100  # characters of CUDA's error, before the advice


def tell_if_lost(wire: autotune_wire.Wire, optimizer: Any = None) -> None:
    """Tells the tuner if torch cannot use the trial's GPU, or if `optimizer` trains on the CPU."""
    torch: Any = sys.modules.get("torch")
    if autotune_wire.GPUS not in os.environ or torch is None:
        return
    why = _why_lost(torch)
    if why is None and optimizer is not None:
        trained = (parameter for group in optimizer.param_groups for parameter in group["params"])
        held_bytes = map(torch.cuda.max_memory_reserved, range(torch.cuda.device_count()))
        if not any(p.is_cuda for p in trained) and not any(held_bytes):
            why = "the script trains on the CPU, but torch can use the trial's GPU: train on that"
    if why is not None:
        wire.tell({"gpu_lost": f"{why}, or give trials no GPU: --gpus-per-trial 0"})


def _why_lost(torch: Any) -> str | None:
    if torch.cuda.is_initialized():
        return None
    build = f"torch {torch.__version__} in {sys.executable}"
    if torch.version.cuda is None:
        return f"{build} is a build without CUDA: install one with it"
    try:
        torch.cuda.init()
    except Exception as error:  # noqa: BLE001 - whatever CUDA says is the answer
        message = str(error)[:_LONGEST].split(". ")[0].split("\n")[0] or type(error).__name__
        return f"{build} cannot use the trial's GPU: {message}: see nvidia-smi"
    return None


def attach_cap(torch: Any, optimizer: Any, cap_bytes: int) -> None:
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


def _is_one_of_several() -> bool:
    processes: Any = sys.modules.get("multiprocessing.process")
    is_spawned = processes is not None and processes.parent_process() is not None
    return is_spawned or autotune_wire.world_size() > 1


class _Cap:
    """Caps all GPUs if the process is alone, else only its own: a cap opens a context on the GPU."""

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
        gpu = autotune_figures.busiest(cuda)
        if cuda.max_memory_reserved(gpu):
            self._set([gpu])

    def _set(self, gpus: Iterable[int]) -> None:
        self._is_set = True
        autotune_figures.cap(self._cuda, self._cap_bytes, gpus)
