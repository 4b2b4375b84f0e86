"""The GPUs of a trial's process once its workload has loaded torch: caps, timing, memory figures."""

import math
import os
import sys
from contextlib import suppress
from typing import Any

from autotune.inside.messages import GpuLostError
from autotune.inside.site import autotune_figures
from autotune.inside.site.autotune_figures import of_allocator
from autotune.system import devices
from autotune.trials.gpu_memory import GpuMemory

BAD_FORK = 3


class Cuda:
    """The GPUs of this process; does nothing without GPUs or without torch."""

    def __init__(self, gpus: float, cap_bytes: int | None) -> None:
        """`gpus`, rounded up, must be visible; 0: none. `cap_bytes` caps the allocator on each."""
        self._gpus, self._cap_bytes = math.ceil(gpus), cap_bytes
        self._torch: Any = None
        self._before_bytes: list[int] = []
        self.pace = autotune_figures.Pace()  # whether the GPU keeps up with the steps

    def open(self) -> None:
        """Checks and caps the GPUs once torch is loaded; raises GpuLostError if torch cannot use them all."""
        torch = sys.modules.get("torch")
        if not self._gpus or self._torch is not None or torch is None:
            return
        try:
            self._open(torch)
        except (RuntimeError, AssertionError) as error:  # AssertionError: torch without CUDA
            raise GpuLostError(f"torch cannot use the trial's GPU: {error}") from error
        self._torch = torch

    def _open(self, torch: Any) -> None:
        torch.cuda.init()
        if (count := torch.cuda.device_count()) < self._gpus:
            raise RuntimeError(f"it finds {count} of {self._gpus}")
        if self._cap_bytes is not None:
            autotune_figures.cap(torch.cuda, self._cap_bytes, range(count))
        memory = [torch.cuda.mem_get_info(index) for index in range(count)]
        self._before_bytes = [total_bytes - free_bytes for free_bytes, total_bytes in memory]

    def has_settled(self) -> bool:
        """Returns True if the GPU has finished its queue, so that the last step ends now."""
        return self._torch is None or self.pace.has_settled()

    def figures(self) -> dict[str, int]:
        """Returns the allocator's figures in bytes, {} if it was never used."""
        return of_allocator(self._stats())

    def context_bytes(self) -> int:
        """Returns the process's GPU memory outside the allocator (context, kernels), 0 if unknown."""
        stats = self._stats()
        held_bytes = devices.held_bytes().get(os.getpid(), 0) if stats else 0
        return max(0, held_bytes - stats["reserved_bytes"]["all"]["current"]) if held_bytes else 0

    def _stats(self) -> dict[str, Any]:
        """Returns torch's figures of the GPU that the process uses most."""
        if self._torch is None:
            return {}
        cuda = self._torch.cuda
        stats: dict[str, Any] = cuda.memory_stats_as_nested_dict(autotune_figures.busiest(cuda))
        return stats

    def memory(self) -> GpuMemory | None:
        """Returns the state of the GPU memory, None if there is no GPU or it no longer answers."""
        with suppress(RuntimeError):
            if stats := self._stats():
                gpu = autotune_figures.busiest(self._torch.cuda)
                free_bytes, total_bytes = self._torch.cuda.mem_get_info(gpu)
                return GpuMemory(
                    total_bytes=total_bytes,
                    free_bytes=free_bytes,
                    reserved_bytes=stats["reserved_bytes"]["all"]["current"],
                    allowed_bytes=min(total_bytes, self._cap_bytes or total_bytes),
                    elsewhere_before_bytes=self._before_bytes[gpu],
                    refusals=stats["num_ooms"] + stats["num_alloc_retries"],
                )
        return None


def exit_if_bad_fork() -> None:
    """Exits with BAD_FORK if this process can never use CUDA because its parent has used it."""
    torch = sys.modules.get("torch")
    sys.exit(BAD_FORK if torch is not None and torch.cuda._is_in_bad_fork() else 0)
