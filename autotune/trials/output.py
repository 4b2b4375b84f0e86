"""What a trial's processes print: it passes by here on its way into the log."""

import fcntl
import os
import weakref
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

_PIPE_BYTES = 2**20  # the most that Linux lets a pipe hold: printing less between two looks never waits
_MOST_READS = 64  # at a look: what prints without end must not keep this process from all else
_LONGEST_LINE_BYTES = 2**16  # a longer one is written in pieces


class Output:
    """Adds to `log` what comes out of `pipe`, line by line, as `hide` makes it.

    What the log has no room for is lost: the trial's records, which have none either, say so.
    """

    def __init__(self, pipe: Connection, log: Path, hide: Callable[[str], str]) -> None:
        os.set_blocking(pipe.fileno(), False)
        with suppress(OSError):  # more than this user may have
            fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self.pipe = pipe
        self.ended = False
        self._hide = hide
        self._rest = b""
        self._log = log.open("ab", buffering=0)
        self._close = weakref.finalize(self, self._log.close)

    def take(self) -> None:
        """Writes the lines that are there and whole."""
        for _ in range(_MOST_READS):
            chunk = self._read()
            if not chunk:
                return
            said = self._rest + chunk
            end = _end_of_lines(said)
            self._write(said[:end])
            self._rest = said[end:]

    def _read(self) -> bytes:
        try:
            chunk = os.read(self.pipe.fileno(), _PIPE_BYTES)
        except BlockingIOError:
            return b""
        self.ended = not chunk
        return chunk

    def _write(self, lines: bytes) -> None:
        text = lines.decode(errors="surrogateescape")
        with suppress(OSError):
            self._log.write(self._hide(text).encode(errors="surrogateescape"))

    def finish(self) -> None:
        """Writes all that is there: its printer has ended."""
        self.take()
        rest, self._rest = self._rest, b""
        self._write(rest)

    def close(self) -> None:
        """Writes what is left and closes pipe and log; twice does no harm."""
        if not self.pipe.closed:
            self.finish()
            self.pipe.close()
            self._close()


def _end_of_lines(said: bytes) -> int:
    """How much of `said` can be written: a secret that has come in part is held back."""
    end = max(said.rfind(b"\n"), said.rfind(b"\r")) + 1
    if len(said) - end <= _LONGEST_LINE_BYTES:
        return end
    return said.rfind(b" ") + 1 or len(said)
