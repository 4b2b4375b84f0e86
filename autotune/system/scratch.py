"""The private directory of a search: all temporary files of its processes lie there, and go with it.

Ray's sockets and files, multiprocessing's sockets, W&B's and whatever a workload puts into the temporary
directory. No other user may look into it. It identifies its processes, too: it is in their environment.
"""

import fcntl
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from autotune.core.errors import InputError
from autotune.system import cgroup
from autotune.system.guardian import Guardian, descendants, remove_groups, remove_shared_memory, shared_memory

_PREFIX = "autotune_"  # releases before this had directories autotune-*, which nothing shows to be in use
_LONGEST = 36  # bytes: of the 107 of a socket's name Ray takes 64, and a directory of its own
_FALLBACK = Path("/tmp")  # noqa: S108 - a directory is made in it that nobody else can enter
_VARIABLE = "TMPDIR"
_END_S, _LOOK_S = 10.0, 0.02


class Scratch:
    """A private directory in use: this process's temporary directory, and that of all that it starts.

    `guardian` removes it when this process has ended, however that ends.
    """

    def __init__(self) -> None:
        self._before = os.environ.get(_VARIABLE)
        directory, self._lock = _make()
        self.guardian = Guardian(directory, cgroup.group_for_trials(), [self._lock])
        _use(str(directory))

    @property
    def outside(self) -> dict[str, str]:
        """The environment with the temporary directory of before: for whatever takes this process's place.

        This process keeps its own, because what a thread still makes of it goes with this directory.
        """
        before = {} if self._before is None else {_VARIABLE: self._before}
        return {name: value for name, value in os.environ.items() if name != _VARIABLE} | before

    def close(self) -> None:
        """Removes the directory, and ends what the guardian has started."""
        _use(self._before)
        self.guardian.close()
        os.close(self._lock)


@contextmanager
def private() -> Iterator[Scratch]:
    """A private directory for as long as the block lasts. What killed searches have left behind is ended."""
    end_orphans()
    scratch = Scratch()
    try:
        yield scratch
    finally:
        scratch.close()


def _use(directory: str | None) -> None:
    if directory is None:
        os.environ.pop(_VARIABLE, None)
    else:
        os.environ[_VARIABLE] = directory
    tempfile.tempdir = None  # or else Python remembers the one before


def _make() -> tuple[Path, int]:
    """A new directory, and the descriptor whose lock says that it is in use; the kernel releases it.

    Raises InputError if no temporary directory can be locked.
    """
    usual = Path(tempfile.gettempdir())
    for base in (usual, _FALLBACK):
        if made := _made_in(base):
            return made
    raise InputError(f"TMPDIR: must be on a file system that locks directories: flock fails in {usual}")


def _made_in(base: Path) -> tuple[Path, int] | None:
    """The same in `base`; None if its name is too long for sockets, or its file system does not lock."""
    directory = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
    lock = os.open(directory, os.O_RDONLY)
    with suppress(OSError):
        fcntl.flock(lock, fcntl.LOCK_EX)
        if len(os.fsencode(directory)) <= _LONGEST and directory.exists():
            return directory, lock
    os.close(lock)
    if not directory.exists():  # it was taken for an orphan's before it was locked
        return _made_in(base)
    directory.rmdir()
    return None


def end_orphans() -> None:
    """Ends what searches of this user have left behind whose driver and guardian were killed together."""
    for base in {Path(tempfile.gettempdir()), _FALLBACK}:
        for directory in base.glob(f"{_PREFIX}*"):
            with suppress(OSError):  # another user's, or in use
                _end_orphan(directory)


def _end_orphan(directory: Path) -> None:
    """Ends the processes of `directory` and removes it; raises OSError where that is not for this process."""
    if directory.lstat().st_uid != os.getuid():
        return
    lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _end_processes(directory)
        shutil.rmtree(directory, ignore_errors=True)
        if groups := cgroup.group_for_trials():
            remove_groups(groups)
    finally:
        os.close(lock)


def _end_processes(directory: Path) -> None:
    """Kills every process of `directory`, and what they have started, until there is none."""
    deadline, shared = time.monotonic() + _END_S, set[str]()
    while (pids := descendants(_processes(directory))) and time.monotonic() < deadline:
        shared |= shared_memory(pids)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_LOOK_S)
    remove_shared_memory(shared)


def _processes(directory: Path) -> set[int]:
    """The processes that have `directory` for their temporary one, or write what they print into it.

    Some of Ray's overwrite their environment with a title.
    """
    numbers = {int(process.name) for process in Path("/proc").iterdir() if process.name.isdecimal()}
    return {pid for pid in numbers - {os.getpid()} if _is_of(Path("/proc", str(pid)), directory)}


def _is_of(process: Path, directory: Path) -> bool:
    with suppress(OSError):  # it is another user's, or has ended
        if f"{_VARIABLE}={directory}".encode() in (process / "environ").read_bytes().split(b"\0"):
            return True
        printed = [(process / "fd" / number).readlink() for number in ("1", "2")]
        return any(file.is_relative_to(directory) for file in printed)
    return False
