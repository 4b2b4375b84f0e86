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
    """Holds the lock of the directory `root` and of the `file` in it; raises errors as `hold_file` does."""
    directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):  # the file system locks only files
            _lock(directory, file, what)
        with hold_file(file, what):
            yield Held(root, directory)
    finally:
        os.close(directory)


@contextmanager
def hold_file(file: Path, what: str) -> Iterator[None]:
    """Holds the lock `file`, and writes this process into it as the holder.

    Raises SessionBusyError if another process holds it, InputError if it cannot be locked.
    """
    if file.is_symlink() or (file.exists() and not file.is_file()):
        raise InputError(f"{what}: {file} must be a regular file, or absent: remove it")
    with ExitStack() as stack:
        is_in_place = False
        while not is_in_place:
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
            stack.callback(os.close, descriptor)
            try:
                _lock(descriptor, file, what)
            except OSError:
                raise InputError(
                    f"{what}: must be on a file system that locks files, or two processes could use it at "
                    "once: flock fails here; put it on a local disk"
                ) from None
            with suppress(FileNotFoundError):  # removed since it was opened: lock the new one instead
                is_in_place = os.path.samestat(os.fstat(descriptor), file.stat())
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"pid {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        yield


def _lock(descriptor: int, file: Path, what: str) -> None:
    for _ in range(_TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_BETWEEN_S)
        else:
            return
    raise busy_error(file, what)


def busy_error(file: Path, what: str) -> SessionBusyError:
    try:
        holder = files.read(file).strip()
    except (OSError, UnicodeDecodeError):
        holder = ""
    return SessionBusyError(f"{what}: is in use by {holder or 'another process'}; wait or stop it")


def is_held(root: Path, file: Path) -> bool:
    for path in (root, file):
        with suppress(FileNotFoundError), ExitStack() as stack:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            stack.callback(os.close, descriptor)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            except OSError:
                continue  # the file system cannot lock it
    return False
