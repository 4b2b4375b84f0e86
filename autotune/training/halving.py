"""Micro-batches that were halved for want of memory: heard of, and told. Pure but for what it remembers."""

import math
from collections.abc import Mapping

from autotune.core import units
from autotune.core.settings import ACCUMULATION, MICRO_BATCH, Setting

_SAME = "the same effective batch; statistics of batch norms are of smaller batches"


class MicroBatch:
    """The smallest micro-batch that a training with `settings` was heard of.

    The smallest, because what is smaller for a single step, such as the last one of an epoch, comes again.
    """

    def __init__(self, settings: Mapping[str, Setting]) -> None:
        accumulated = units.number(settings.get(ACCUMULATION)) or 1
        self._smallest = units.number(settings.get(MICRO_BATCH))
        self._effective = (self._smallest or 0) * accumulated

    def hear(self, told: Mapping[str, object]) -> str | None:
        """What is to be said of a record, or of changed settings: that its micro-batch is smaller."""
        size, was = units.number(told.get(MICRO_BATCH)), self._smallest
        if size is None or was is None or not 0 < size < was:
            return None
        self._smallest = size
        return f"the trainer halved its micro-batch: {instead(size, was, self._effective)}"


def instead(size: float, was: float, effective: float) -> str:
    """Micro-batches of `size` instead of what it `was`, as many as add up to the `effective` batch."""
    now, before = (f"{one:g}x{math.ceil(effective / one)}" for one in (size, was))
    return f"{now} instead of {before}: {_SAME}"
