"""The scratch directory of a search: holds all temporary files of its processes, and is removed with it."""

import fcntl
import multiprocessing
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

from autotune.core.errors import InputError
from autotune.system import cgroup
from autotune.system.guardian import Guardian, descendants, end_all, remove_groups

_PREFIX = "autotune_"  # not autotune-*, as in older releases, which did not lock their directories
_FALLBACK = Path("/tmp")  # noqa: S108 - only private directories are made in it
_VARIABLE = "TMPDIR"  # in the environment of a search's processes it also identifies them


@contextmanager
def private() -> Iterator[Guardian]:
    """Ends what killed searches have left, and provides the guardian of a scratch directory for the block."""
    end_orphans()
    config: Any = vars(multiprocessing.current_process())["_config"]  # there is no public way
    before, before_of_processes = os.environ.get(_VARIABLE), config.get("tempdir")
    usual = Path(tempfile.gettempdir())
    locked = _make_in(usual) or _make_in(_FALLBACK)
    if locked is None:
        raise InputError(f"TMPDIR: must be on a file system that locks directories; flock fails in {usual}")
    directory, lock = locked
    guardian = Guardian(directory, cgroup.group_for_trials(), [lock])
    _use(str(directory))  # for this process and its children
    config["tempdir"] = str(directory)  # one that multiprocessing makes, it would look for at exit
    try:
        yield guardian
    finally:
        _use(before)
        config["tempdir"] = before_of_processes
        end_fork_server()  # its environment names the directory
        guardian.close()
        os.close(lock)


def end_fork_server() -> None:
    """Ends multiprocessing's fork server, if there is one: the next process to be forked starts another."""
    if forkserver._forkserver._forkserver_pid:  # type: ignore[attr-defined]
        kill_fork_server()
        with suppress(OSError):  # it has ended
            forkserver._forkserver._stop()  # type: ignore[attr-defined]


def kill_fork_server() -> None:
    """Kills multiprocessing's fork server, which might hang in an import; safe in any thread."""
    if pid := getattr(forkserver._forkserver, "_forkserver_pid", None):  # there is no public way
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def _use(directory: str | None) -> None:
    if directory is None:
        os.environ.pop(_VARIABLE, None)
    else:
        os.environ[_VARIABLE] = directory
    tempfile.tempdir = None  # clears Python's cached value


def _make_in(base: Path) -> tuple[Path, int] | None:
    """Makes the directory in `base` and locks it; None if it cannot, or the path is too long for sockets."""
    directory = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
    lock = os.open(directory, os.O_RDONLY)
    with suppress(OSError):
        fcntl.flock(lock, fcntl.LOCK_EX)
        # A socket's path has at most 107 bytes, of which Ray uses 64 and a directory of its own.
        if len(os.fsencode(directory)) <= 36 and directory.exists():
            return directory, lock
    os.close(lock)
    if not directory.exists():  # another process removed it as an orphan before it was locked
        return _make_in(base)
    directory.rmdir()
    return None


def end_orphans() -> None:
    """Ends this user's searches whose driver and guardian were killed together."""
    bases = {_FALLBACK}
    with suppress(FileNotFoundError):  # none can be written
        bases.add(Path(tempfile.gettempdir()))
    for base in bases:
        for directory in base.glob(f"{_PREFIX}*"):
            with suppress(OSError):  # another user's, or in use
                if directory.lstat().st_uid != os.getuid():
                    continue
                with _lock_abandoned(directory):
                    end_all(partial(_family, directory))
                    shutil.rmtree(directory, ignore_errors=True)
                    if groups := cgroup.group_for_trials():
                        remove_groups(groups)


def _family(directory: Path) -> set[int]:
    """Returns the other processes that use a scratch directory, and all below them."""
    processes = [process for process in Path("/proc").iterdir() if process.name.isdecimal()]
    pids = {int(process.name) for process in processes if _uses(process, directory)}
    return descendants(pids - {os.getpid()})


def _uses(process: Path, directory: Path) -> bool:
    """Returns True if a process has this TMPDIR, or output there: some processes of Ray lose the variable."""
    with suppress(OSError):  # another user's, or ended
        if f"{_VARIABLE}={directory}".encode() in (process / "environ").read_bytes().split(b"\0"):
            return True
        printed = [(process / "fd" / number).readlink() for number in ("1", "2")]
        return any(file.is_relative_to(directory) for file in printed)
    return False


@contextmanager
def directory(prefix: str, beside: Path) -> Iterator[Path]:
    """Provides a directory in `beside` for the block; removes directories that killed processes have left."""
    for left in beside.glob(f"{prefix}*"):
        with suppress(OSError), _lock_abandoned(left):  # another user's, or in use
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
def _lock_abandoned(directory: Path) -> Iterator[None]:
    """Holds the lock of `directory`; raises OSError if another process has it, or it is no directory."""
    lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(lock)
