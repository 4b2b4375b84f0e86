"""Runs a command without a shell, reads its output, and ends it with all its descendants."""

import ctypes
import math
import os
import select
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from shutil import which
from threading import Event, Thread
from typing import NamedTuple

import psutil

from autotune.core.errors import InputError
from autotune.inside.site import autotune_wire as wire
from autotune.inside.site.autotune_output import name_of, unmarked
from autotune.workloads.command.scores import plain

# PR_SET_PDEATHSIG: a command dies with this process, as it would save checkpoints without records.
_DIE_WITH_US = partial(ctypes.CDLL(None).prctl, 1, signal.SIGKILL)
_CHUNK_BYTES = 65536
_PIPE_BYTES = 2**20  # largest capacity of a Linux pipe
_LONGEST_BYTES = 8192  # of a line; longer ones are split
_LINES_KEPT = 50
_LISTEN_MS = 100
_BAR_MS = 50  # after which an unfinished progress bar is read as a line
_LOOK_S = 0.05
_LAST_LOOK_S = 2.0


class OutputLine(NamedTuple):
    """A line of the output, without color codes."""

    text: str
    at_s: float  # when it was printed if it `is_stamped`, else when it was read
    is_stamped: bool = False


class Lines:
    """Splits chunks of bytes into nonempty lines of at most 8 KiB. Pure."""

    def __init__(self) -> None:
        self._rest = b""
        self._is_after_return = False

    @property
    def bar(self) -> str:
        """Current text of a progress bar: the text after a carriage return, without a line end so far."""
        return _text(self._rest) if self._is_after_return else ""

    def add(self, chunk: bytes) -> list[str]:
        """Returns the lines completed by `chunk`."""
        if b"\r" in chunk or b"\n" in chunk:
            self._is_after_return = chunk.rfind(b"\r") > chunk.rfind(b"\n")
        *whole, rest = (self._rest + chunk.replace(b"\r", b"\n")).split(b"\n")
        cut = len(rest) - len(rest) % _LONGEST_BYTES
        self._rest = rest[cut:]
        lines = [*whole, rest[:cut]]
        return [
            _text(line[at : at + _LONGEST_BYTES])
            for line in lines
            for at in range(0, len(line), _LONGEST_BYTES)
        ]

    def end(self) -> list[str]:
        """Returns the unfinished last line at the end of the output."""
        rest, self._rest = self._rest, b""
        return [_text(rest)] if rest else []


def _text(line: bytes) -> str:
    return line.decode(errors="replace")


class Process:
    """A running command, in the process group of its parent."""

    def __init__(
        self,
        arguments: Sequence[str],
        directory: Path,
        environment: Mapping[str, str],
        mark: str,  # variable in the environment whose unique value identifies descendants
        heard: Callable[[OutputLine], bool],  # gets every line, on a thread; returns True if it used the line
        *,
        is_silent: bool = False,  # otherwise the output is forwarded to that of this process
    ) -> None:
        self._mark = (mark, environment[mark])
        self._heard, self._is_enough, self._is_silent = heard, Event(), is_silent
        self.heard_s = -math.inf  # time up to which all printed lines have been read
        self.tail: deque[str] = deque(maxlen=_LINES_KEPT)
        self._output, theirs = os.pipe()
        try:
            own = {wire.OUTPUT: name_of(theirs)}
            self._process = start(arguments, directory, {**environment, **own}, theirs)
        except InputError:
            os.close(self._output)
            raise
        finally:
            os.close(theirs)
        self.pid = self._process.pid
        self._listener = Thread(target=self._listen, daemon=True)
        self._listener.start()

    @property
    def code(self) -> int | None:
        """Exit code, negative for a signal; None while it runs."""
        return self._process.poll()

    @property
    def is_over(self) -> bool:
        """True if the command and all its descendants have ended."""
        return self.code is not None and not self._listener.is_alive() and not self.family()

    def wait(self, timeout_s: float) -> float:
        """Waits for the end of the command's output, at most for `timeout_s`; returns the seconds waited."""
        begun_s = time.monotonic()
        if self._listener.is_alive():
            self._listener.join(timeout_s)
        else:
            time.sleep(min(timeout_s, _LOOK_S))
        return time.monotonic() - begun_s

    def family(self) -> list[psutil.Process]:
        """Returns the command and all its descendants, orphans included."""
        name, value = self._mark
        family = []
        for one in psutil.process_iter():
            with suppress(psutil.Error, OSError):  # of another user, or ended
                if one.environ().get(name) == value and _is_alive(one):
                    family.append(one)
        return family

    def end(self, grace_s: float) -> None:
        """Ends the command with SIGTERM, and kills what is left of its processes after `grace_s`."""
        deadline = time.monotonic() + grace_s
        if self.code is None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(grace_s)
        # Only now: without its loader workers, the command might not be able to write a checkpoint.
        family = self.family()
        for one in family:
            with suppress(psutil.Error):
                one.terminate()
        self._wait_for(family, deadline)
        while left := self.family():  # repeated, because new processes may have started
            for one in left:
                with suppress(psutil.Error):
                    one.kill()
            self._wait_for(left, time.monotonic() + _LAST_LOOK_S)
            if time.monotonic() > deadline + _LAST_LOOK_S:
                break
        self._process.wait()
        self._is_enough.set()
        self._listener.join()

    def _wait_for(self, family: Sequence[psutil.Process], deadline: float) -> None:
        while any(_is_alive(one) for one in family) and time.monotonic() < deadline:
            self._process.poll()  # reaps the zombie
            time.sleep(_LOOK_S)

    def _listen(self) -> None:
        with os.fdopen(self._output, "rb", buffering=0) as pipe:
            lines, poll, looked_s = Lines(), select.poll(), -math.inf
            poll.register(pipe, select.POLLIN)
            has_bar, left_bytes = False, _PIPE_BYTES
            while left_bytes > 0:
                # An unrecognized process may keep the pipe open and write on.
                is_enough = self._is_enough.is_set()
                before_s, looked_s = looked_s, time.monotonic()
                if poll.poll(0 if is_enough else _BAR_MS if has_bar else _LISTEN_MS):
                    looked_s = time.monotonic()
                    chunk = pipe.read(_CHUNK_BYTES)
                    if not chunk:
                        break
                    self._pass_on(time.monotonic(), lines.add(chunk))
                    has_bar = lines.bar != ""
                    left_bytes -= len(chunk) if is_enough else 0
                elif has_bar:
                    has_bar = False
                    if self._heard(_line(lines.bar, before_s)):
                        self._show(lines.end())
                elif is_enough:
                    break
                self.heard_s = before_s if has_bar else looked_s
            self._pass_on(time.monotonic(), lines.end())
        self.heard_s = math.inf

    def _pass_on(self, read_s: float, texts: Sequence[str]) -> None:
        for text in texts:
            self._heard(_line(text, read_s))
        self._show(texts)

    def _show(self, texts: Sequence[str]) -> None:
        lines = [text for marked in texts if (text := unmarked(marked)[0])]
        self.tail.extend(map(plain, lines))
        if self._is_silent:
            return
        with suppress(OSError, ValueError):  # nobody reads our output any more
            sys.stdout.buffer.write("".join(f"{text}\n" for text in lines).encode(errors="replace"))
            sys.stdout.buffer.flush()


def _line(text: str, read_s: float) -> OutputLine:
    text, at_s = unmarked(text)
    return OutputLine(plain(text), read_s if at_s is None else min(at_s, read_s), is_stamped=at_s is not None)


def is_program(name: str, directory: Path, path: str | None) -> bool:
    """Returns True if `start` would find a program of this name in `directory`, or on the search `path`."""
    return which(str(directory / name) if os.sep in name else name, path=path) is not None


def start(
    arguments: Sequence[str], directory: Path, environment: Mapping[str, str], output: int
) -> "subprocess.Popen[bytes]":
    """Starts a process; raises InputError if the program does not exist or cannot be run."""
    try:
        return subprocess.Popen(  # noqa: S603 - the user's own command, without a shell
            arguments,
            cwd=directory,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            bufsize=0,
            preexec_fn=_DIE_WITH_US,  # noqa: PLW1509 - only a system call, which takes no locks
        )
    except (OSError, ValueError) as error:  # ValueError: a zero byte
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(f"workload.run: {arguments[0]} cannot be started in {directory}: {reason}") from None


def _is_alive(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False
