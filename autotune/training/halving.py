"""Detects and reports micro-batches that the trainer halved for lack of memory. Stateful, no I/O."""

import math
from collections.abc import Mapping

from autotune.core import units
from autotune.core.settings import ACCUMULATION, MICRO_BATCH, Setting

_SAME = "the same effective batch; statistics of batch norms are of smaller batches"


class MicroBatch:
    """Tracks the smallest micro-batch seen in two consecutive records.

    A single smaller one may be the last batch of an epoch.
    """

    def __init__(self, settings: Mapping[str, Setting]) -> None:
        accumulated = units.number(settings.get(ACCUMULATION)) or 1
        self._smallest = units.number(settings.get(MICRO_BATCH))
        self._effective = (self._smallest or 0) * accumulated
        self._last: float | None = None

    def hear(self, record: Mapping[str, object]) -> str | None:
        """Returns a message if `record` and the one before it have a smaller micro-batch, else None."""
        if (size := units.number(record.get(MICRO_BATCH))) is None:
            return None
        was, (before, self._last) = self._smallest, (self._last, size)
        if was is None or size != before or not 0 < size < was:
            return None
        self._smallest = size
        return f"the trainer halved its micro-batch: {instead(size, was, self._effective)}"


def instead(size: float, was: float, effective: float) -> str:
    """Returns e.g. `8x4 instead of 16x2: ...`, size x accumulation at the same `effective` batch."""
    now, before = (f"{one:g}x{math.ceil(effective / one)}" for one in (size, was))
    return f"{now} instead of {before}: {_SAME}"
