"""The process that trains on a CPU."""

import ctypes

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
