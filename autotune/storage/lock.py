"""The lock that a process holds on the session that it uses.

The kernel releases a lock when its holder ends, however it ends, so a lock is never stale. The session's
directory itself is locked, so that nobody can delete the lock alone. A file that names the holder is locked
too, because NFS and some other file systems lock only files.
"""

import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from autotune.core import files
from autotune.core.errors import InputError, SessionBusyError

_TRIES, _BETWEEN_S = 5, 0.1  # `is_held` in another process holds the lock for a moment


@dataclass(frozen=True)
class Held:
    """The lock of the directory `root`, held by this process and those that it forks."""

    root: Path
    directory: int  # open descriptor of `root`

    @property
    def is_in_place(self) -> bool:
        """True if `root` is still the directory that was locked, and neither deleted nor replaced."""
        try:
            return os.path.samestat(os.fstat(self.directory), self.root.stat())
        except OSError:
            return False


@contextmanager
def hold(root: Path, file: Path, what: str) -> Iterator[Held]:
    """Holds the lock of the directory `root` and of the `file` in it.

    Raises SessionBusyError, which names the holder, if another process has it, and InputError if neither can
    be locked.
    """
    with ExitStack() as stack:
        directory = _open(root, os.O_RDONLY | os.O_DIRECTORY, stack)
        is_locked = _try_lock(directory)
        if is_locked is False:
            raise busy_error(file, what)
        _take(file, what, stack, is_only_lock=is_locked is None)
        yield Held(root, directory)


@contextmanager
def hold_file(file: Path, what: str) -> Iterator[None]:
    """Holds the lock `file`; raises SessionBusyError if another process does, InputError if locking fails."""
    with ExitStack() as stack:
        _take(file, what, stack, is_only_lock=True)
        yield


def _open(path: Path, flags: int, stack: ExitStack) -> int:
    descriptor = os.open(path, flags, 0o644)
    stack.callback(os.close, descriptor)
    return descriptor


def _take(file: Path, what: str, stack: ExitStack, *, is_only_lock: bool) -> None:
    """Locks `file`, and writes this process into it as the holder."""
    if file.exists() and not file.is_file():
        raise InputError(f"{what}: {file} must be a regular file, or absent: remove it")
    while True:
        descriptor = _open(file, os.O_RDWR | os.O_CREAT, stack)
        is_locked = _try_lock(descriptor)
        if is_locked is False:
            raise busy_error(file, what)
        if is_locked is None and is_only_lock:
            raise InputError(
                f"{what}: must be on a file system that locks files, or two processes could use it at once: "
                "flock fails here; put it on a local disk"
            )
        with suppress(FileNotFoundError):  # removed since it was opened: lock the new one instead
            if os.path.samestat(os.fstat(descriptor), file.stat()):
                break
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"pid {os.getpid()} on {socket.gethostname()}\n".encode(), 0)


def _try_lock(descriptor: int) -> bool | None:
    """Returns True if the lock was taken, False if another process holds it, None if locking fails."""
    for left in reversed(range(_TRIES)):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_BETWEEN_S if left else 0)
        except OSError:
            return None
        else:
            return True
    return False


def busy_error(file: Path, what: str) -> SessionBusyError:
    try:
        holder = files.read(file).strip()
    except (OSError, UnicodeDecodeError):
        holder = ""
    return SessionBusyError(f"{what}: is in use by {holder or 'another process'}; wait or stop it")


def is_held(root: Path, file: Path) -> bool:
    """Returns True if a process holds the lock of `root`."""
    return _is_held(root) or _is_held(file)


def _is_held(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # the file system cannot lock it
        return False
    finally:
        os.close(descriptor)
    return False
