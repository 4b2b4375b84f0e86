"""The pipes from a trial's process: its messages, and its output, copied into a log of bounded size."""

import fcntl
import json
import os
import weakref
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from autotune.inside.inbox import LineReader

MOST_BYTES = 32 * 2**20  # of a log
_KEPT_BYTES = 8 * 2**20  # of its beginning, and of its end, where it is longer
_PIPE_BYTES = 2**20  # Linux's limit: printing less than that between two reads never blocks


class Pipe:
    """Reads what is in a pipe without waiting for more."""

    def __init__(self, pipe: Connection) -> None:
        os.set_blocking(pipe.fileno(), False)
        with suppress(OSError):  # beyond the user's limit
            fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self.pipe = pipe
        self.ended = False

    def read(self) -> bytes:
        """Returns the bytes that are available, up to 1 MiB."""
        try:
            chunk = os.read(self.pipe.fileno(), _PIPE_BYTES)
        except BlockingIOError:
            return b""
        self.ended = not chunk
        return chunk


class Messages(Pipe):
    """A child's messages, one line of JSON each."""

    def __init__(self, pipe: Connection) -> None:
        super().__init__(pipe)
        self._lines = LineReader()

    def take(self) -> list[dict[str, Any]]:
        """Returns the complete messages that are available."""
        return [json.loads(line) for line in self._lines.add(self.read())]


class OutputLog(Pipe):
    """Appends the output in `pipe` to `log`, line by line, each passed through `hide`."""

    def __init__(self, pipe: Connection, log: Path, hide: Callable[[str], str]) -> None:
        super().__init__(pipe)
        self._hide = hide
        self._rest = b""
        self.last_words = b""  # the end of what this pipe has brought
        self._log = log.open("ab", buffering=0)
        self._close = weakref.finalize(self, self._log.close)

    def take(self) -> None:
        """Writes the complete lines that are available."""
        for _ in range(64):  # not more, so that endless output does not block this process
            chunk = self.read()
            if not chunk:
                return
            text = self._rest + chunk
            end = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
            if len(text) - end > 2**16:  # a longer line is written in pieces that cut no secret in two
                end = text.rfind(b" ") + 1 or len(text)
            self._write(text[:end])
            self._rest = text[end:]

    def _write(self, lines: bytes) -> None:
        text = self._hide(lines.decode(errors="surrogateescape")).encode(errors="surrogateescape")
        self.last_words = (self.last_words + text)[-(2**16) :]
        with suppress(OSError):  # a full disk: writing the records reports that
            self._log.write(text)

    def finish(self) -> None:
        """Writes everything that is left; called once the printing process has ended."""
        self.take()
        rest, self._rest = self._rest, b""
        self._write(rest)

    def close(self) -> None:
        """Writes what is left and closes pipe and log; may be called twice."""
        if not self.pipe.closed:
            self.finish()
            self.pipe.close()
            self._close()


def bound(log: Path) -> None:
    """Keeps 8 MiB at either end of a `log` longer than 32 MiB; lines written meanwhile may be lost."""
    with suppress(FileNotFoundError):
        if log.stat().st_size <= MOST_BYTES:
            return
        with log.open("rb") as file:
            size = file.seek(-_KEPT_BYTES, os.SEEK_END) + _KEPT_BYTES
            tail = file.read()
        os.truncate(log, _KEPT_BYTES)
        with log.open("ab") as file:
            file.write(b"\n[... %d bytes left out ...]\n" % (size - 2 * _KEPT_BYTES) + tail)
