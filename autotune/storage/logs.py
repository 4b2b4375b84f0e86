"""A trial's log, bounded: how it began and how it ended is kept, the middle of a long one is left out."""

import os
from contextlib import suppress
from pathlib import Path

MOST_BYTES, _KEPT_BYTES = 32 * 2**20, 8 * 2**20  # as long as it may become, and of its head and of its tail
_LEFT_OUT = b"\n[... %d bytes left out ...]\n"


def bound(log: Path) -> None:
    """Leaves out the middle of a `log` that is longer than 32 MiB, of which 8 MiB at either end stay.

    Appending may continue meanwhile; what is written in that very moment can be left out as well.
    """
    with suppress(FileNotFoundError):
        if log.stat().st_size > MOST_BYTES:
            _shorten(log)


def _shorten(log: Path) -> None:
    with log.open("rb") as file:
        size = file.seek(-_KEPT_BYTES, os.SEEK_END) + _KEPT_BYTES
        tail = file.read()
    os.truncate(log, _KEPT_BYTES)
    with log.open("ab") as file:
        file.write(_LEFT_OUT % (size - 2 * _KEPT_BYTES) + tail)
