"""Temporary directories that are tied to a process, and removed after it however it ends."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def directory(prefix: str, beside: Path) -> Iterator[Path]:
    """Provides a directory in `beside` for the block; removes directories that killed processes have left."""
    for left in beside.glob(f"{prefix}*"):
        with suppress(OSError), lock_abandoned(left):  # another user's, or in use
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=beside) as name:
        lock = os.open(name, os.O_RDONLY)
        try:
            with suppress(OSError):  # without locks, no process removes it either
                fcntl.flock(lock, fcntl.LOCK_EX)  # released by the kernel when this process ends
            yield Path(name)
        finally:
            os.close(lock)


@contextmanager
def lock_abandoned(directory: Path) -> Iterator[None]:
    """Holds the lock of `directory`; raises OSError if another process has it, or it is no directory."""
    lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(lock)
