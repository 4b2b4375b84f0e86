"""What a script has seen, step by step, in a file that outlives it. The script writes it, the tuner reads it.

A checkpoint is known by the moment it was written. What the script had seen by then is in here, because every
step is noted before the script continues. What it has sent to the tuner may be lost when both are killed.
"""

from __future__ import annotations

import os
import struct
import time
from typing import NamedTuple

_FORM = struct.Struct("<4q")
_MOST = 2**15  # entries, 1 MiB; then the oldest is overwritten, which the tuner has read long ago
_COARSE = 5  # Linux's CLOCK_REALTIME_COARSE, by which file systems stamp
_UNKNOWN = -1
_COPIED_NS = 10**9  # by more no file is younger than its last entry


class Entry(NamedTuple):
    """The end of a step: its number, what had been seen in all by then, and when it was."""

    number: int
    samples: int
    tokens: int
    at_ns: int


def file_of(workdir: str) -> str:
    """Where it is for a trial."""
    return os.path.join(workdir, ".steps")  # noqa: PTH118 - a script may have no pathlib yet


class Journal:
    """Continues `file`, or begins it: `samples` and `tokens` are what the checkpoint had seen."""

    def __init__(self, file: str, samples: int, tokens: int | None) -> None:
        self._file = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
        self._last = max(_entries(file), default=Entry(0, samples, _number(tokens), 0))
        self._write(self._last)

    def add(self, samples: int | None, tokens: int | None) -> None:
        """A step has ended that has seen so much; None is not known."""
        number, had, had_tokens, _ = self._last
        more = had_tokens if tokens is None else max(0, had_tokens) + tokens
        self._write(Entry(number + 1, had + (samples or 0), more, time.clock_gettime_ns(_COARSE)))

    def _write(self, entry: Entry) -> None:
        """Whole or not at all, because it is a part of one page."""
        self._last = entry
        os.pwrite(self._file, _FORM.pack(*entry), entry.number % _MOST * _FORM.size)


def seen_at(file: str, moment_ns: int) -> tuple[int, int | None] | None:
    """Samples and tokens in all at a moment by the file system's clock; None where that is not known."""
    entries = _entries(file)
    if not entries or _has_lost_its_times(file, max(entries)):
        return None
    before = [entry for entry in entries if entry.at_ns <= moment_ns]
    found = max(before, default=None)
    return found and (found.samples, None if found.tokens == _UNKNOWN else found.tokens)


def _has_lost_its_times(file: str, newest: Entry) -> bool:
    """Whether it is a copy that was made without them; the checkpoint next to it has another one's, too."""
    written_ns = os.stat(file).st_mtime_ns  # noqa: PTH116 - a script may have no pathlib yet
    return newest.number > 0 and written_ns - newest.at_ns > _COPIED_NS


def _number(tokens: int | None) -> int:
    return _UNKNOWN if tokens is None else tokens


def _entries(file: str) -> list[Entry]:
    """All that are left; none where there is no such file."""
    try:
        with open(file, "rb") as stream:  # noqa: PTH123 - a script may have no pathlib yet
            data = stream.read()
    except OSError:
        return []
    whole = data[: len(data) - len(data) % _FORM.size]
    return [Entry(*fields) for fields in _FORM.iter_unpack(whole)]
