"""What an exception or an exit status says about why a trial failed. Pure: no process, no file."""

import errno
import re
import signal
from collections.abc import Iterator

from autotune.trial import Failure, Outcome, Status

# What an allocator says when it has no more: CUDA, cuBLAS, cuDNN, the CPU allocator, oneDNN, C++, a loader's
# worker that ran out of memory or was killed for it, and /dev/shm.
_OOM_TEXT = re.compile(
    r"CUDA out of memory"
    r"|CUDA error: out of memory"
    r"|CUDA driver error: out of memory"
    r"|CUBLAS_STATUS_ALLOC_FAILED"
    r"|CUDNN_STATUS_ALLOC_FAILED"
    r"|CUDNN_STATUS_INTERNAL_ERROR_(HOST|DEVICE)_ALLOCATION_FAILED"
    r"|can't allocate memory"
    r"|Cannot allocate memory"
    r"|std::bad_alloc"
    r"|could not (create|execute) a primitive"
    r"|can't start new thread"
    r"|Thread creation failed: Resource temporarily unavailable"
    r"|Caught (MemoryError|OutOfMemoryError) in DataLoader worker"
    r"|DataLoader worker \(pid[^)]*\) is killed by signal: (Killed|Bus error)"
    r"|insufficient shared memory"
)
_OOM_TYPES = {"OutOfMemoryError", "MemoryError"}
_DIVERGED_TYPES = {"DivergedError", "FloatingPointError"}
_LONGEST = 300


def failed(kind: Failure, reason: str) -> Outcome:
    """The outcome of a trial that failed, its reason in one printable line of at most 300 characters."""
    printable = "".join(c if c.isprintable() else " " for c in reason)
    return Outcome(Status.FAILED, kind, " ".join(printable.split())[:_LONGEST])


def of_exception(error: BaseException) -> Outcome:
    """Why a workload that raised `error` failed; what `error` was caused by counts as well."""
    reason = f"{type(error).__name__}: {error}"
    chain = list(_chain(error))
    if any(_is_out_of_memory(cause) for cause in chain):
        return failed(Failure.OOM, reason)
    if any(_names(cause) & _DIVERGED_TYPES for cause in chain):
        return failed(Failure.DIVERGED, reason)
    return failed(Failure.ERROR, reason)


def _is_out_of_memory(error: BaseException) -> bool:
    """By type where there is one of its own, and by text for the RuntimeErrors of C++ code.

    Of other types the text says nothing: a ValueError may well speak of memory.
    """
    if _names(error) & _OOM_TYPES:
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, RuntimeError | SystemError) and _OOM_TEXT.search(str(error)) is not None


def _names(error: BaseException) -> set[str]:
    """The names of the error's classes: torch's own are told without importing torch."""
    return {kind.__name__ for kind in type(error).__mro__}


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def of_exit(code: int, last_words: str, *, kernel_killed: bool) -> Outcome:
    """Why a process failed that ended with `code` (negative: by that signal) without a verdict of its own.

    `last_words` is the end of its log: C++ code that cannot allocate in a thread can only abort.
    `kernel_killed` says that the kernel killed a process for memory in the meantime.
    """
    if code == -signal.SIGKILL and kernel_killed:
        return failed(Failure.OOM, "killed by the kernel, which was out of memory")
    what = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exited with {code} without a verdict"
    if code in {-signal.SIGABRT, 1} and (said := _OOM_TEXT.search(last_words)):
        return failed(Failure.OOM, f"{what}: {said[0]}")
    return failed(Failure.ERROR, what)
