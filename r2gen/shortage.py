"""Recognises out-of-memory errors, and halves the batch size after one."""

import gc
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import torch

from r2gen import host
from r2gen.config import Config

_T = TypeVar("_T")
# Errors without a type of their own: the CPU's allocator, CUDA outside of PyTorch's allocator, a compiler.
# A test compares these texts with the tuner's.
_TEXT = re.compile(
    r"[Cc]an(no|')t allocate memory|not enough memory|Could not allocate memory|std::bad_alloc"
    r"|(CUDA|HIP|Triton)\b[^\n]{0,40}\bout of memory|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation"
    r"|Cuda failure (\d+ )?'out of memory'"
    r"|CU(BLAS|DNN|SOLVER)_STATUS_ALLOC_FAILED|CUDNN_STATUS_\w+[^\n]*out of memory"
    r"|CUDNN_STATUS_INTERNAL_ERROR_(HOST|DEVICE)_ALLOCATION_FAILED"
    r"|NVML_SUCCESS == [^\n]{0,120}INTERNAL ASSERT FAILED[^\n]{0,120}CUDACachingAllocator"
    r"|[Oo]ut of memory allocating \d+ bytes|Caught \w*MemoryError in "
)
# Raised by libraries that get no workspace, but also for other reasons.
_TEXT_ON_A_FULL_GPU = re.compile(
    r"CUBLAS_STATUS_NOT_INITIALIZED when calling `cublas(Lt)?Create|CUDNN_STATUS_NOT_INITIALIZED"
    r"|CU(BLAS|DNN|SOLVER)_STATUS_(INTERNAL_ERROR|EXECUTION_FAILED)"
    r"|unable to find an engine to execute this computation|No valid engine configs"
)
_TEXT_UNDER_A_LIMIT = re.compile(r"could not (create|execute) a primitive")
_SHORT_SHARE = 0.05  # of a GPU's memory: libraries request more than that at once


def is_out_of_memory(error: BaseException) -> bool:
    """Returns True if `error` says that the device or the host ran out of memory."""
    return is_recognised(error, _is_gpu_full, host.is_limited)


def is_recognised(
    error: BaseException, is_gpu_full: Callable[[], bool], is_limited: Callable[[], bool]
) -> bool:
    """Returns True if `error` reports an out-of-memory, or may be one: the GPU is full, or memory limited."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    if not isinstance(error, (RuntimeError, SystemError)):
        return False
    text = str(error)
    return (
        _TEXT.search(text) is not None
        or (_TEXT_ON_A_FULL_GPU.search(text) is not None and is_gpu_full())
        or (_TEXT_UNDER_A_LIMIT.search(text) is not None and is_limited())
    )


def _is_gpu_full() -> bool:
    """Returns True if almost no GPU memory is free, or PyTorch's allocator failed to get memory before."""
    if not torch.cuda.is_available():
        return False
    with suppress(RuntimeError):  # the GPU no longer responds
        free, total = torch.cuda.mem_get_info()
        stats = torch.cuda.memory_stats()
        return free < _SHORT_SHARE * total or stats["num_ooms"] + stats["num_alloc_retries"] > 0
    return False


class HalvedBatch:
    """A batch `size` that is halved for good whenever an attempt runs out of memory.

    It is halved only with `halve_on_oom`. Each halving prints a line on stderr that ends in `note`.
    """

    def __init__(self, setting: str, config: Config, note: str = "") -> None:
        self._setting, self._note, self._may_halve = setting, note, config.halve_on_oom
        self._configured = self.size = int(getattr(config, setting))

    @property
    def is_halved(self) -> bool:
        return self.size < self._configured

    def restore(self, size: int) -> None:
        """Continues with the micro-batch size at which an earlier run ended, if halving is allowed."""
        if self._may_halve:
            self.size = min(size, self._configured)

    def run(self, attempt: Callable[[int], _T], undo: Callable[[], bool] = lambda: False) -> _T:
        """Returns the result of `attempt` with a size that fits.

        `undo` reverts a failed attempt, and returns True if the same size may fit now.
        Any other error of `attempt`, and an out-of-memory at size 1, is raised; the size is then unchanged.
        """
        before = self.size
        while True:
            try:
                return attempt(self.size)
            except Exception as error:
                may_fit = is_out_of_memory(error) and undo()
                may_halve = self._may_halve and self.size > 1 and is_out_of_memory(error)
                if not (may_fit or may_halve):
                    self.size = before
                    raise
            # Outside of the handler: the error's traceback keeps the attempt's tensors alive.
            _release()
            if not may_fit:
                self._halve()

    def _halve(self) -> None:
        whole, self.size = self.size, (self.size + 1) // 2
        print(
            f"out of memory with {self._setting} {whole}: from here on it is {self.size}{self._note}",
            file=sys.stderr,
            flush=True,
        )


def _release() -> None:
    gc.collect()
    host.give_back_freed_memory()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()  # cached blocks of the larger batch fragment the memory
