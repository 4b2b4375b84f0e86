"""Bounds the size of a trial's log, of which it keeps the beginning and the end."""

import os
from contextlib import suppress
from pathlib import Path

MOST_BYTES = 32 * 2**20
_KEPT_BYTES = 8 * 2**20  # of the beginning, and of the end


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
