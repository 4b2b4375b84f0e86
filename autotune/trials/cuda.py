"""The GPUs of a trial's own process, once its workload has loaded torch: opened, capped, waited for, read."""

import math
import os
import sys
from contextlib import suppress
from typing import Any

from autotune.inside.messages import GpuLostError
from autotune.inside.site import autotune_gpu
from autotune.system import gpu_holders
from autotune.trials.gpu_memory import GpuMemory

BAD_FORK = 3


class Cuda:
    """The GPUs of this process. Without one, or without torch, everything is as if there were none."""

    def __init__(self, gpus: float, cap_bytes: int | None) -> None:
        """`gpus` must be there, 0 for none; `cap_bytes` is what the allocator may take of each."""
        self._gpus, self._cap_bytes = math.ceil(gpus), cap_bytes
        self._torch: Any = None
        self._before_bytes = 0
        self._pace = autotune_gpu.Pace()

    def open(self) -> None:
        """Ensures that the GPUs are there, and caps them; called again, it does what could not be done yet.

        Raises GpuLostError where torch cannot use as many: what is measured then is something else.
        """
        torch = sys.modules.get("torch")
        if not self._gpus or self._torch is not None or torch is None:
            return
        try:
            self._open(torch)
        except (RuntimeError, AssertionError) as error:  # AssertionError: of a build of torch without CUDA
            raise GpuLostError(f"torch cannot use the trial's GPU: {error}") from error
        self._torch = torch

    def _open(self, torch: Any) -> None:
        torch.cuda.init()
        if (found := torch.cuda.device_count()) < self._gpus:
            raise RuntimeError(f"it finds {found} of {self._gpus}")
        if self._cap_bytes is not None:
            autotune_gpu.cap(torch.cuda, self._cap_bytes)
        free_bytes, total_bytes = torch.cuda.mem_get_info()
        self._before_bytes = total_bytes - free_bytes

    def has_settled(self) -> bool:
        """Whether the GPU has done all that it was given, so that now is when the last step has ended."""
        return self._torch is None or self._pace.has_settled()

    def evaluated(self) -> None:
        """Takes note that the workload has evaluated: what is timed next begins anew."""
        self._pace.evaluated()

    def figures(self) -> dict[str, int]:
        """The allocator's figures in bytes; nothing where it has never been used."""
        stats = self._stats()
        if not stats or not stats["allocated_bytes"]["all"]["peak"]:
            return {}
        allocated, reserved = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
        return {
            "memory_allocated_bytes": allocated["current"],
            "memory_reserved_bytes": reserved["current"],
            "memory_peak_bytes": allocated["peak"],
            "memory_peak_reserved_bytes": reserved["peak"],
        }

    def context_bytes(self) -> int:
        """What the process takes of the GPU besides its allocator: context, kernels; 0 where unknown."""
        stats = self._stats()
        held_bytes = gpu_holders.held_bytes().get(os.getpid(), 0) if stats else 0
        return max(0, held_bytes - stats["reserved_bytes"]["all"]["current"]) if held_bytes else 0

    def _stats(self) -> dict[str, Any]:
        stats: dict[str, Any] = self._torch.cuda.memory_stats_as_nested_dict() if self._torch else {}
        return stats

    def memory(self) -> GpuMemory | None:
        """What the GPU's memory says about an error; None where there is no GPU, or it answers no more."""
        with suppress(RuntimeError):
            if stats := self._stats():
                free_bytes, total_bytes = self._torch.cuda.mem_get_info()
                return GpuMemory(
                    total_bytes=total_bytes,
                    free_bytes=free_bytes,
                    reserved_bytes=stats["reserved_bytes"]["all"]["current"],
                    allowed_bytes=min(total_bytes, self._cap_bytes or total_bytes),
                    elsewhere_before_bytes=self._before_bytes,
                    refusals=stats["num_ooms"] + stats["num_alloc_retries"],
                )
        return None


def tell_of_bad_fork() -> None:
    """Ends this process, with BAD_FORK where it can never use CUDA: one that it was forked from has."""
    torch = sys.modules.get("torch")
    sys.exit(BAD_FORK if torch is not None and torch.cuda._is_in_bad_fork() else 0)
