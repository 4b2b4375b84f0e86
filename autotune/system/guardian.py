"""Nothing outlives its driver: a process of its own, below which the daemons of a search run.

It has a session of its own, so that a signal to the driver's group or from its terminal reaches the driver
alone. Every orphan below it becomes its child (it is a subreaper), so that it can find and end all there is,
and nothing else. It watches the driver by a pipe, which the kernel closes however the driver ends. Only the
standard library is imported here: it runs as a script.
"""

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, cast

_PR_SET_CHILD_SUBREAPER = 36
_READY = "ready"
_LOOK_S = 0.1
_SETTLE_S = 2.0
_END_S = 10.0  # what hangs in a driver or a file system cannot be killed, nor waited for
_LAST_WORDS = 500


class StartError(Exception):
    """What was to be started ended with an error; the text is the last line of what it said."""


@contextmanager
def guarded(start: Sequence[str], directory: Path, lost: Callable[[], None]) -> Iterator[None]:
    """Runs the command `start`, which leaves daemons behind that may use `directory`; both go in the end.

    Should a daemon die before, everything goes at once, and `lost` is called in a thread. Raises StartError
    where `start` fails.
    """
    _adopt_orphans()  # of the guardian, should it be killed
    leaving = threading.Event()
    command = [sys.executable, "-I", __file__, str(directory), *start]
    guardian = subprocess.Popen(  # noqa: S603 - commands of ours
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    driver, words = cast("IO[str]", guardian.stdin), cast("IO[str]", guardian.stdout)

    def watch() -> None:
        words.read()  # ends with the guardian
        if not leaving.is_set():
            end_descendants(_END_S)  # its own, should it have been killed
            shutil.rmtree(directory, ignore_errors=True)
            lost()

    watching = threading.Thread(target=watch, name="guardian", daemon=True)
    try:
        _await_start(words)
        watching.start()
        yield
    except Exception:
        if watching.ident is not None:
            watching.join(_SETTLE_S)  # what a daemon's death breaks is heard of before the death itself
        raise
    finally:
        leaving.set()
        driver.close()
        with suppress(subprocess.TimeoutExpired):
            guardian.wait(_END_S)
        if guardian.returncode is not None and guardian.returncode < 0:
            end_descendants(_END_S)  # it was killed, and its orphans have come to this process
            shutil.rmtree(directory, ignore_errors=True)


def _await_start(words: IO[str]) -> None:
    if words.readline().strip() != _READY:
        *_, last = ["it was killed", *words.read().splitlines()]
        raise StartError(last[:_LAST_WORDS])


def end_descendants(timeout_s: float) -> None:
    """Kills all that this process has started, and what that has started, until nothing is left."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        for pid in _descendants():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:  # orphans become children: without a child there is nobody
            return
        time.sleep(_LOOK_S / 10)


def _adopt_orphans() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _descendants() -> list[int]:
    """The processes below this one; those that have ended and are not waited for included."""
    parents = _parents()
    found = {os.getpid()}
    while below := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= below
    return sorted(found - {os.getpid()})


def _parents() -> dict[int, int]:
    """The parent of every process."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                # The name, in parentheses, may hold anything; the state and the parent follow it.
                after_name = (entry / "stat").read_text(errors="replace").rpartition(")")[2]
                parents[int(entry.name)] = int(after_name.split()[1])
    return parents


def _has_ended(driver: int) -> bool:
    """Whether the driver's end of the pipe `driver` is closed, looking for a moment."""
    return bool(select.select([driver], [], [], _LOOK_S)[0])


def _serve(directory: Path, start: Sequence[str]) -> None:
    """Starts the daemons and says so, and returns when the driver, or one of them, has ended."""
    driver = sys.stdin.fileno()
    log = directory / "start.log"
    with log.open("w") as output:
        starting = subprocess.Popen(start, stdin=subprocess.DEVNULL, stdout=output, stderr=output)  # noqa: S603
    while starting.poll() is None:
        if _has_ended(driver):
            return
    if starting.returncode:
        print(f"failed\n{log.read_text(errors='replace').strip()}", flush=True)
        return
    daemons = {pid for pid, parent in _parents().items() if parent == os.getpid()}
    print(_READY, flush=True)
    while not _has_ended(driver):
        while (ended := os.waitpid(-1, os.WNOHANG)[0]) != 0:
            if ended in daemons:
                return


def main(directory: str, *start: str) -> None:
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)  # it ends with the driver; a handler is not inherited
    _adopt_orphans()
    try:
        _serve(Path(directory), start)
    finally:
        end_descendants(3600.0)
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
