"""Nothing outlives its command: a process of its own, below which the daemons of a search run.

It has a session of its own, so that a signal to the driver's group or from its terminal reaches the driver
alone. Every orphan below it becomes its child (it is a subreaper), so that it can find and end all there is,
and nothing else. It watches the driver by a pipe, which the kernel closes however the driver ends, and in
which the driver says what to start. Only the standard library is imported here: it runs as a script.
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

_PR_SET_CHILD_SUBREAPER = 36
_READY, _FAILED, _END, _ENDED = "ready", "failed", "end", "ended"
_LOOK_S = 0.1
_WATCH_S = 0.5  # of Ray once it runs: every look takes time from the trials
_SETTLE_S = 2.0
_END_S = 10.0  # what hangs in a driver or a file system cannot be killed, nor waited for
_LAST_WORDS = 500
_TRIES, _BETWEEN_S = 40, 0.05  # a control group is busy for a moment after the last one has left it
# Only what multiprocessing and torch name themselves: a user may keep data of their own there.
_SHARED_MEMORY = ("/dev/shm/psm_", "/dev/shm/torch_")  # noqa: S108 - looked for, not made

GROUP = "autotune-"  # what the control groups of trials are called before the process that has made them


class StartError(Exception):
    """What was to be started ended with an error; the text is the last line of what it said."""


class Guardian:
    """Ends all that runs below it when this process has ended, however that ends, and removes `directory`.

    So it does with the trials' control groups in `groups`. It keeps the descriptors `held` open as long as it
    lives.
    """

    def __init__(self, directory: Path, groups: Path | None = None, held: Collection[int] = ()) -> None:
        _adopt_orphans()  # of the guardian, should it be killed
        self._directory, self._groups = directory, groups
        self._process = subprocess.Popen(  # noqa: S603 - a command of ours
            [sys.executable, "-I", __file__, str(directory), *map(str, filter(None, [groups]))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            pass_fds=held,
        )
        self._orders = cast("IO[str]", self._process.stdin)
        self._words = cast("IO[str]", self._process.stdout)

    @property
    def directory(self) -> Path:
        """Where what it starts may write: it goes with the guardian."""
        return self._directory

    @contextmanager
    def running(
        self, start: Sequence[str], environment: Mapping[str, str], lost: Callable[[], None]
    ) -> Iterator[None]:
        """Runs the command `start`, which leaves daemons behind; they are ended in the end.

        Should a daemon die before, `lost` is called in a thread, and everything is ended, the guardian
        included. Raises StartError where `start` fails.
        """
        leaving = threading.Event()

        def watch() -> None:
            if self._words.readline().strip() != _ENDED and not leaving.is_set():
                lost()
                self.end_what_it_left()

        watching = threading.Thread(target=watch, name="guardian", daemon=True)
        self._say(json.dumps([list(start), dict(environment)]))  # its command line could be seen by any user
        try:
            self._await_start()
            watching.start()
            yield
        except Exception:
            if watching.ident is not None:
                watching.join(_SETTLE_S)  # what a daemon's death breaks is noticed before the death itself
            raise
        finally:
            leaving.set()
            self._say(_END)
            if watching.ident is None:
                self._words.readline()
            else:
                watching.join(_END_S)

    def _say(self, line: str) -> None:
        with suppress(OSError):  # it was killed
            print(line, file=self._orders, flush=True)

    def _await_start(self) -> None:
        answer, _, said = self._words.readline().strip().partition(" ")
        if answer != _READY:
            raise StartError(json.loads(said)[:_LAST_WORDS] if said else "it was killed")

    def close(self) -> None:
        """Waits until nothing is left of what ran below it, nor of its directory."""
        with suppress(OSError):
            self._orders.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
        self._words.close()
        if self._process.returncode is not None and self._process.returncode < 0:
            self.end_what_it_left()

    def end_what_it_left(self) -> None:
        """Ends all that runs below this process, to which the orphans of a guardian come that was killed."""
        end_descendants(_END_S)
        _clear(self._directory, self._groups)


def end_descendants(timeout_s: float) -> None:
    """Kills all that this process has started, and what that has started, until nothing is left.

    Shared memory that they alone had goes with them.
    """
    deadline, shared = time.monotonic() + timeout_s, set[str]()
    while time.monotonic() < deadline:
        below = descendants([os.getpid()]) - {os.getpid()}
        shared |= shared_memory(below)
        for pid in below:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:  # orphans become children: without a child nothing is left
            remove_shared_memory(shared)
            return
        time.sleep(_LOOK_S / 10)


def shared_memory(pids: Iterable[int]) -> set[str]:
    """The files of named shared memory that processes have mapped; those of multiprocessing and torch alone.

    A process that is killed leaves them behind, and with them the memory.
    """
    found = set()
    for pid in pids:
        with suppress(OSError):
            maps = Path(f"/proc/{pid}/maps").read_text(errors="replace")
            fields = (line.split(maxsplit=5) for line in maps.splitlines() if "/dev/shm/" in line)  # noqa: S108
            found |= {name for *_, name in fields if name.startswith(_SHARED_MEMORY)}
    return {name for name in found if not name.endswith(" (deleted)")}


def remove_shared_memory(files: Collection[str]) -> None:
    """Removes those of `files` that no process has mapped."""
    for file in set(files) - shared_memory(_parents() if files else ()):
        with suppress(OSError):
            Path(file).unlink()


def _adopt_orphans() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def descendants(ancestors: Collection[int]) -> set[int]:
    """The processes `ancestors` and all below them; those that have ended and are not waited for included."""
    parents, found = _parents(), set(ancestors)
    while below := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= below
    return found


def _parents() -> dict[int, int]:
    """The parent of every process."""
    found = {int(entry.name): _stat(entry) for entry in Path("/proc").iterdir() if entry.name.isdecimal()}
    return {pid: int(fields[1]) for pid, fields in found.items() if fields}


def _stat(process: Path) -> list[str]:
    """The state of a process, its parent and what follows in its `stat`; nothing where there is none."""
    with suppress(OSError):
        # The name, in parentheses, may hold anything.
        return (process / "stat").read_text(errors="replace").rpartition(")")[2].split()
    return []


def _serve(directory: Path, orders: FileIO) -> None:
    """Starts what the driver says until the driver, or one of the daemons, has ended."""
    while line := orders.readline():
        start, environment = json.loads(line)
        if not _run(directory, start, environment, orders):
            return
        end_descendants(3600.0)
        print(_ENDED, flush=True)


def _run(directory: Path, start: Sequence[str], environment: Mapping[str, str], orders: FileIO) -> bool:
    """Starts the daemons and says so; returns whether it was the driver that asked for their end."""
    log = directory / "start.log"
    with log.open("w") as output:
        starting = subprocess.Popen(  # noqa: S603 - a command of the driver's
            start, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    while starting.poll() is None:
        if _is_said(orders, _LOOK_S):
            return bool(orders.readline())
    daemons = set[int]()
    if starting.returncode:
        *_, last = ["it was killed", *log.read_text(errors="replace").strip().splitlines()]
        print(_FAILED, json.dumps(last), flush=True)
    else:
        daemons = {pid for pid, parent in _parents().items() if parent == os.getpid()}
        print(_READY, flush=True)
    while not _is_said(orders, _WATCH_S):
        if _has_ended(daemons):
            return False
    return bool(orders.readline())


def _is_said(orders: FileIO, timeout_s: float) -> bool:
    """Whether the driver says something, or closes its end of the pipe, within that time."""
    return bool(select.select([orders], [], [], timeout_s)[0])


def _has_ended(daemons: Collection[int]) -> bool:
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG)[0]) != 0:
            if ended in daemons:
                return True
    return False


def remove_groups(place: Path) -> None:
    """Removes the control groups in `place` that were made for trials by processes that have ended.

    These may not have been waited for: what started Ray inherits children that it knows nothing of.
    """
    for group in place.glob(f"{GROUP}*"):
        maker = group.name.removeprefix(GROUP).partition("-")[0]
        if _stat(Path("/proc", maker))[:1] in ([], ["Z"]):
            _remove_group(group)


def _remove_group(group: Path) -> None:
    """Removes `group`, unless a process is in it."""
    for _ in range(_TRIES):
        with suppress(OSError):
            group.rmdir()
        if not group.exists() or _holds_somebody(group):
            return
        time.sleep(_BETWEEN_S)


def _holds_somebody(group: Path) -> bool:
    with suppress(OSError):
        return bool((group / "cgroup.procs").read_text().strip())
    return False


def _clear(directory: Path, groups: Path | None) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    if groups is not None:
        remove_groups(groups)


def main(directory: str, groups: str | None = None) -> None:
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)  # it ends with the driver; a handler is not inherited
    _adopt_orphans()
    try:
        # Unbuffered: what is said must not stay unseen in a buffer.
        with open(sys.stdin.fileno(), "rb", buffering=0, closefd=False) as orders:
            _serve(Path(directory), orders)
    finally:
        end_descendants(3600.0)
        _clear(Path(directory), Path(groups) if groups else None)


if __name__ == "__main__":
    main(*sys.argv[1:])
