"""Out of memory: what says so, and a batch size that is halved where it is."""

import gc
import re
import sys
from collections.abc import Callable
from typing import TypeVar

import torch

from r2gen import host
from r2gen.config import Config

_T = TypeVar("_T")
# Of errors without a type of their own: the CPU's allocator, CUDA outside of PyTorch's allocator, and oneDNN,
# whose own buffers are often the first that a process with limited memory does not get.
_TEXT = re.compile(
    r"can't allocate memory|Cannot allocate memory|not enough memory|std::bad_alloc"
    r"|(CUDA|HIP) (error: )?out of memory|CU(BLAS|DNN)_STATUS_ALLOC_FAILED"
    r"|could not (create|execute) a primitive"
)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether `error` says that memory ran out, the device's or the host's."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and _TEXT.search(str(error)) is not None


class HalvedBatch:
    """The `size` of a batch, halved for good whenever what is done with it runs out of memory.

    Only where the configuration has `halve_on_oom`. A line on stderr tells of it, with `note` at its end.
    """

    def __init__(self, setting: str, config: Config, note: str = "") -> None:
        self._setting, self._note, self._may_halve = setting, note, config.halve_on_oom
        self._configured = self.size = int(getattr(config, setting))

    @property
    def is_halved(self) -> bool:
        return self.size < self._configured

    def restore(self, size: int) -> None:
        """Goes on with the size that a run before has come to, where halving is allowed."""
        if self._may_halve:
            self.size = min(size, self._configured)

    def run(self, attempt: Callable[[int], _T], undo: Callable[[], None]) -> _T:
        """What `attempt` returns with a size that fits; what it did before it failed is undone.

        Raises what it raises with a size of 1, and whatever else; the size is then what it was before.
        """
        before = self.size
        while True:
            try:
                return attempt(self.size)
            except Exception as error:
                if not self._may_halve or self.size == 1 or not is_out_of_memory(error):
                    self.size = before
                    raise
            # Not before the error is gone: its traceback holds all that the attempt has allocated.
            undo()
            _release()
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
        torch.cuda.empty_cache()  # pieces of the larger batch are in the way of the smaller ones
