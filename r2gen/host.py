"""The process on its host: what it keeps, and what it held."""

import ctypes
from pathlib import Path

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # of glibc's malloc.h


def keep_freed_memory() -> None:
    """Makes the C library keep what is freed for what is allocated next, for the rest of the process.

    A training step takes and frees gigabytes in large pieces. By default glibc hands every one of them back
    to the kernel, which clears the pages again for the next tensor: some 13% of a step of the full model.
    Other libraries are left as they are.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, -1)


def peak_resident_bytes() -> int:
    """The most memory that the process has held so far. What its parent held does not count in it."""
    with Path("/proc/self/status").open(encoding="ascii", errors="replace") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
