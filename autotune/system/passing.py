"""Directories for a while: of one process each, and gone with it, however that ends."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def directory(prefix: str, beside: Path) -> Iterator[Path]:
    """A new directory in `beside` for as long as the block lasts, its name beginning with `prefix`.

    Those that killed processes have left there are removed.
    """
    for left in beside.glob(f"{prefix}*"):
        with suppress(OSError):  # another user's, or in use
            _remove(left)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=beside) as name:
        lock = os.open(name, os.O_RDONLY)
        try:
            with suppress(OSError):  # without locks, nobody removes it while it is in use either
                fcntl.flock(lock, fcntl.LOCK_EX)  # the kernel releases it when this process has ended
            yield Path(name)
        finally:
            os.close(lock)


def _remove(left: Path) -> None:
    """Raises OSError where a process holds it."""
    lock = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(left, ignore_errors=True)
    finally:
        os.close(lock)
