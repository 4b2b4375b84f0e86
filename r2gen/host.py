"""The memory of the process on its host: the allocator's settings, limits, and the peak."""

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
    """Makes glibc keep freed memory for later allocations, for the rest of the process.

    A training step allocates and frees gigabytes in large blocks. By default glibc returns each to the
    kernel, which clears the pages again for the next tensor: some 13% of a step of the full model.

    If the process has a hard limit on its mapped memory, this does the reverse: all large blocks are
    returned, which glibc otherwise stops doing for recurring sizes, and all threads share one heap. Memory
    that is free within a heap still counts against the limit, and after an out-of-memory would leave no room
    for smaller batches. Other C libraries are left as they are.
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
    """Makes glibc stop keeping freed memory, and returns as much as possible to the kernel.

    If memory is short, kept blocks of the wrong size are in the way, also of allocations outside of glibc:
    oneDNN maps the pages of the code that it generates for every convolution shape.
    """
    library = ctypes.CDLL(None)
    mallopt, trim = getattr(library, "mallopt", None), getattr(library, "malloc_trim", None)
    if mallopt is not None and trim is not None:
        mallopt(_M_MMAP_MAX, _DEFAULT_MMAP_MAX)
        mallopt(_M_TRIM_THRESHOLD, _DEFAULT_TRIM_THRESHOLD)
        trim(0)


def is_limited() -> bool:
    """Returns True if the process has a limit on mapped memory, as from `ulimit -d` or `ulimit -v`."""
    return any(soft != resource.RLIM_INFINITY for soft, _ in _limits())


def _limits() -> Iterator[tuple[int, int]]:
    """Yields limits on mapped bytes: the soft one, which the process can raise, and the hard one."""
    return map(resource.getrlimit, (resource.RLIMIT_DATA, resource.RLIMIT_AS))


def peak_resident_bytes() -> int:
    """Returns the peak resident memory of the process, without its parent's memory before the fork."""
    with Path("/proc/self/status").open(encoding="ascii", errors="replace") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Delays the error that PyTorch raises, at any point in the code, when a loader's worker dies.

    PyTorch raises it in a SIGCHLD handler, which is called at the end instead.
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
