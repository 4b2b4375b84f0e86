"""The process on its host: what it keeps, and what it held."""

import ctypes
import resource
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -3, -4, -8  # of glibc's malloc.h
_DEFAULT_TRIM_THRESHOLD, _DEFAULT_MMAP_THRESHOLD, _DEFAULT_MMAP_MAX = 2**17, 2**17, 2**16  # of its malloc.c


def tune_allocator() -> None:
    """Makes the C library keep what is freed for what is allocated next, for the rest of the process.

    A training step takes and frees gigabytes in large pieces. By default glibc hands every one of them back
    to the kernel, which clears the pages again for the next tensor: some 13% of a step of the full model.

    Where the process may map only so much and cannot change that, it does the reverse: all large pieces are
    handed back, which glibc stops doing for sizes that come again, and all threads allocate from one heap.
    What is free in a heap still counts there: after an out-of-memory it would leave no room for smaller
    batches. Other libraries are left as they are.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    if any(hard != resource.RLIM_INFINITY for _, hard in _limits()):
        mallopt(_M_MMAP_THRESHOLD, _DEFAULT_MMAP_THRESHOLD)  # given explicitly, it does not grow
        mallopt(_M_ARENA_MAX, 1)
    else:
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, -1)


def give_back_freed_memory() -> None:
    """Makes the C library keep no more, and hands to the kernel what it has kept, as far as it can.

    Where memory is short, pieces of the wrong size are in the way, also of what is not allocated by that
    library: oneDNN maps the pages of the code that it makes for every shape of a convolution.
    """
    library = ctypes.CDLL(None)
    mallopt, trim = getattr(library, "mallopt", None), getattr(library, "malloc_trim", None)
    if mallopt is not None and trim is not None:
        mallopt(_M_MMAP_MAX, _DEFAULT_MMAP_MAX)
        mallopt(_M_TRIM_THRESHOLD, _DEFAULT_TRIM_THRESHOLD)
        trim(0)


def is_limited() -> bool:
    """Whether the process may map only so much memory, as by `ulimit -d` or `ulimit -v`."""
    return any(soft != resource.RLIM_INFINITY for soft, _ in _limits())


def _limits() -> Iterator[tuple[int, int]]:
    """How many bytes may be mapped: the soft limit, which the process can raise, and the hard one."""
    return map(resource.getrlimit, (resource.RLIMIT_DATA, resource.RLIMIT_AS))


def peak_resident_bytes() -> int:
    """The most memory that the process has held so far. What its parent held does not count in it."""
    with Path("/proc/self/status").open(encoding="ascii", errors="replace") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Holds back the error that PyTorch raises in the middle of anything when a loader's worker dies.

    A handler of SIGCHLD raises it, which is called at the end instead.
    """
    handler = signal.getsignal(signal.SIGCHLD)
    if not callable(handler) or threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[tuple[int, Any]] = []
    signal.signal(signal.SIGCHLD, lambda number, frame: held.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, handler)
    if held:
        handler(*held[0])
