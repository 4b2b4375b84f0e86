"""The guardian: a process that runs the daemons of a search below it and ends them with the search.

As a subreaper it becomes the parent of every orphan below it, and so can end all of them. The kernel closes
the pipe of orders however the driver ends. It runs as a script and imports only the standard library.
"""

import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import IO, cast

_READY, _FAILED, _END, _ENDED = "ready", "failed", "end", "ended"
_END_S = 10.0  # limit, because a process stuck in a driver or file system cannot be killed

GROUP = "autotune-"  # prefix of the names of trials' control groups, before the ID of their maker


class StartError(Exception):
    """The command to start failed; the text is the last line of its output."""


class Guardian:
    """Ends all below it, removes `directory` and control groups in `groups`, however this process ends."""

    def __init__(self, directory: Path, groups: Path | None = None, held: Collection[int] = ()) -> None:
        _adopt_orphans()  # those of the guardian, if it is killed
        self.directory = directory  # for files of the processes that it starts; removed at its end
        self._groups = groups
        self._process = subprocess.Popen(  # noqa: S603 - a command of ours
            [sys.executable, "-I", __file__, str(directory), *map(str, filter(None, [groups]))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # signals to the driver's process group or terminal do not reach it
            pass_fds=held,  # open as long as it lives
        )
        self._orders = cast("IO[str]", self._process.stdin)
        self._words = cast("IO[str]", self._process.stdout)

    @contextmanager
    def running(
        self, start: Sequence[str], environment: Mapping[str, str], lost: Callable[[], None]
    ) -> Iterator[None]:
        """Runs the command `start`, whose daemons end with the block; raises StartError if it fails.

        If a daemon dies earlier, `lost` is called in a thread, and everything ends, the guardian included.
        """
        leaving = threading.Event()

        def watch() -> None:
            if self._words.readline().strip() != _ENDED and not leaving.is_set():
                lost()
                self.end_orphans_below()

        watching = threading.Thread(target=watch, name="guardian", daemon=True)
        self._send(json.dumps([list(start), dict(environment)]))  # any user could see a command line
        try:
            self._await_start()
            watching.start()
            yield
        except Exception:
            if watching.ident is not None:
                watching.join(2.0)  # the error may arrive before the report of the daemon's death
            raise
        finally:
            leaving.set()
            self._send(_END)
            if watching.ident is None:
                self._words.readline()
            else:
                watching.join(_END_S)

    def _send(self, line: str) -> None:
        with suppress(OSError):  # it was killed
            print(line, file=self._orders, flush=True)

    def _await_start(self) -> None:
        answer, _, error = self._words.readline().strip().partition(" ")
        if answer != _READY:
            raise StartError(json.loads(error)[:500] if error else "it was killed")

    def close(self) -> None:
        """Waits until all processes below the guardian and its directory are gone."""
        with suppress(OSError):
            self._orders.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
        self._words.close()
        if self._process.returncode is not None and self._process.returncode < 0:
            self.end_orphans_below()

    def end_orphans_below(self) -> None:
        """Ends all descendants of this process, which has adopted the orphans of a killed guardian."""
        end_descendants()
        _clear(self.directory, self._groups)


def end_descendants(timeout_s: float = _END_S) -> None:
    """Kills all descendants of this process until none is left, or for `timeout_s`."""

    def below() -> set[int]:
        _reap()
        return descendants([os.getpid()]) - {os.getpid()}

    end_all(below, timeout_s)


def end_all(find: Callable[[], Collection[int]], timeout_s: float = _END_S) -> None:
    """Kills the processes in `find()` until there are none, or for `timeout_s`; frees their shared memory."""
    deadline, shared = time.monotonic() + timeout_s, set[str]()
    while (pids := find()) and time.monotonic() < deadline:
        shared |= shared_memory(pids)
        for pid in pids:
            with suppress(OSError):  # it has ended, or is another user's
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)  # a killed process takes a moment to be gone
    remove_shared_memory(shared)


def _reap() -> set[int]:
    """Waits for the children that have ended, and returns their IDs."""
    ended = set[int]()
    with suppress(ChildProcessError):
        while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
            ended.add(pid)
    return ended


def shared_memory(pids: Iterable[int]) -> set[str]:
    """Returns the shared-memory files of multiprocessing and torch that the processes `pids` have mapped."""
    files = set()
    for pid in pids:
        with suppress(OSError):
            maps = Path(f"/proc/{pid}/maps").read_text(errors="replace")
            fields = (line.split(maxsplit=5) for line in maps.splitlines() if "/dev/shm/" in line)  # noqa: S108
            # Only names given by multiprocessing and torch: users may keep data of their own there.
            prefixes = ("/dev/shm/psm_", "/dev/shm/torch_")  # noqa: S108 - looked for, not made
            files |= {name for *_, name in fields if name.startswith(prefixes)}
    return {name for name in files if not name.endswith(" (deleted)")}


def remove_shared_memory(files: Collection[str]) -> None:
    """Removes each of the `files` that no process has mapped."""
    for file in set(files) - shared_memory(_parents() if files else ()):
        with suppress(OSError):
            Path(file).unlink()


def _adopt_orphans() -> None:
    ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER


def descendants(ancestors: Collection[int]) -> set[int]:
    """Returns `ancestors` and all processes below them, zombies included."""
    parents, family = _parents(), set(ancestors)
    while below := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= below
    return family


def _parents() -> dict[int, int]:
    stats = {int(entry.name): _stat(entry) for entry in Path("/proc").iterdir() if entry.name.isdecimal()}
    return {pid: int(fields[1]) for pid, fields in stats.items() if fields}


def _stat(process: Path) -> list[str]:
    """Returns state, parent and the following fields of a process's `stat`, [] if there is none."""
    with suppress(OSError):
        # The name, in parentheses, may contain anything.
        return (process / "stat").read_text(errors="replace").rpartition(")")[2].split()
    return []


def _run(directory: Path, start: Sequence[str], environment: Mapping[str, str], orders: FileIO) -> bool:
    """Starts the daemons and reports that; returns True if the driver asked for their end."""
    log = directory / "start.log"
    with log.open("w") as output:
        starting = subprocess.Popen(  # noqa: S603 - a command of the driver's
            start, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    while starting.poll() is None:
        if _is_readable(orders, 0.1):
            return bool(orders.readline())
    daemons = set[int]()
    if starting.returncode:
        *_, last = ["it was killed", *log.read_text(errors="replace").strip().splitlines()]
        print(_FAILED, json.dumps(last), flush=True)
    else:
        daemons = {pid for pid, parent in _parents().items() if parent == os.getpid()}
        print(_READY, flush=True)
    while not _is_readable(orders, 0.5):  # not more often: every look takes time from the trials
        if daemons & _reap():
            return False
    return bool(orders.readline())


def _is_readable(orders: FileIO, timeout_s: float) -> bool:
    """Returns True if the driver writes to the pipe or closes it within `timeout_s`."""
    return bool(select.select([orders], [], [], timeout_s)[0])


def remove_groups(place: Path) -> None:
    """Removes the control groups in `place` that belong to trials of processes that have ended."""
    for group in place.glob(f"{GROUP}*"):
        maker = group.name.removeprefix(GROUP).partition("-")[0]
        # A zombie has ended: the parent of Ray's daemons inherits children and never waits for them.
        if _stat(Path("/proc", maker))[:1] in ([], ["Z"]):
            remove_group(group)


def remove_group(group: Path) -> None:
    """Removes `group`, unless a process is in it."""
    for _ in range(40):  # it stays busy for a moment after its last process
        with suppress(OSError):
            group.rmdir()
        if not group.exists() or processes_in(group):
            return
        time.sleep(0.05)


def processes_in(group: Path) -> list[int]:
    """Returns the processes in a control group, [] if it has been removed."""
    with suppress(OSError):
        return [int(pid) for pid in (group / "cgroup.procs").read_text().split()]
    return []


def _clear(directory: Path, groups: Path | None) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    if groups is not None:
        remove_groups(groups)


def main(directory: str, groups: str | None = None) -> None:
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)  # it ends with the driver; children do not inherit a handler
    _adopt_orphans()
    try:
        # Unbuffered, because select does not see what is in a buffer.
        with open(sys.stdin.fileno(), "rb", buffering=0, closefd=False) as orders:
            while line := orders.readline():
                start, environment = json.loads(line)
                if not _run(Path(directory), start, environment, orders):
                    break  # the driver or one of the daemons has ended
                end_descendants(3600.0)
                print(_ENDED, flush=True)
    finally:
        end_descendants(3600.0)
        _clear(Path(directory), Path(groups) if groups else None)


if __name__ == "__main__":
    main(*sys.argv[1:])
