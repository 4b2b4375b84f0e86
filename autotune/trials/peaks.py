"""Peak memory of a trial, computed from its records. Pure."""

from collections.abc import Mapping
from typing import Any

from autotune.core import units
from autotune.judging.measurement import trends

_OWN, _SCRIPT, _CHILDREN = "memory_peak_bytes", "memory_script_bytes", "memory_children_bytes"
_RESERVED, _CONTEXT = "memory_peak_reserved_bytes", "memory_context_bytes"


class MemoryPeaks:
    """The peak memory of a trial, and its growth by steps."""

    def __init__(self) -> None:
        self._highest = dict.fromkeys((_OWN, _SCRIPT, _CHILDREN, _RESERVED, _CONTEXT), 0)
        self._held_bytes = self._steps = self._growth_bytes = 0
        self._noted = [(0, 0)]  # samples, and growth of the peak by the steps up to there
        self.restart()

    def restart(self) -> None:
        """Notes that a new process begins, whose memory grows from the start."""
        self._growth = trends.Series()

    def count(self, record: Mapping[str, Any], *, is_step: bool) -> None:
        """Counts the memory in a record; growth at a step (`is_step`) may happen again at any later step."""
        highest, samples = self._highest, record["samples"]
        for name in highest:
            highest[name] = max(highest[name], int(amount(record, name)))
        # On a GPU, the allocator alone counts. A script that reports its own peak is a descendant.
        others_bytes = 0 if highest[_RESERVED] else max(highest[_CHILDREN], highest[_SCRIPT])
        before, self._held_bytes = self._held_bytes, max(self._held_bytes, highest[_OWN] + others_bytes)
        if not is_step:
            return
        self._steps += 1
        self._growth_bytes += self._held_bytes - before
        self._growth.add(samples, self._growth_bytes)
        # Not a point a step, however long a leak lasts.
        if self._growth_bytes - self._noted[-1][1] > 0.0025 * self._held_bytes:
            self._noted.append((samples, self._growth_bytes))

    def peak_bytes(self) -> int | None:
        """Returns the most memory held at once, None if it is too little to be the training process's."""
        return self._if_plausible(self._held_bytes)

    def _if_plausible(self, held_bytes: int) -> int | None:
        # No training takes less than 1 MiB: a lower peak on the host means that unseen processes trained.
        return held_bytes if held_bytes and (self._highest[_RESERVED] or held_bytes >= 2**20) else None

    def figures(self, samples: int) -> dict[str, Any]:
        """Returns the fields of a `Measurement` after `samples`, except the peak itself."""
        has_peak = self.peak_bytes() is not None
        early_bytes = max(grown for at, grown in self._noted if at <= samples * 2 / 3)
        late_bytes = self._growth_bytes - early_bytes  # the growth of the peak in the last third
        is_rising = late_bytes > 0.02 * (self._held_bytes - late_bytes)
        return {
            "own_peak_bytes": self._if_plausible(max(self._highest[_OWN], self._highest[_SCRIPT])),
            "peak_reserved_bytes": self._highest[_RESERVED] or None,
            "context_bytes": self._highest[_CONTEXT] or None,
            # Of fewer steps, the last third may still contain the first allocations.
            "memory_is_rising": has_peak and self._steps >= 12 and is_rising,
            "memory_slope": trends.slope(self._growth.points) if has_peak else None,
        }


def amount(record: Mapping[str, Any], name: str) -> float:
    """Returns a non-negative figure of a record, 0 if it is missing or not a number."""
    value = record.get(name)
    return 0.0 if value is None else max(0.0, units.number(value) or 0.0)
