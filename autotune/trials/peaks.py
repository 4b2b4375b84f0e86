"""Peak memory and FLOPs of a trial, counted from its records. Pure."""

from collections import Counter
from collections.abc import Mapping

from autotune.core import units
from autotune.core.measurement import Slope
from autotune.judging.measurement import trends

_RISING_SHARE, _RISING_PART = 0.02, 1 / 3  # of the peak, in the last part of a trial's samples
_RISING_STEPS = 12  # with fewer, the last third may still contain the first allocations
_FINE_SHARE = 0.0025  # growth before a new point is noted, so that a leak does not add one every step


class HeldMemory:
    """The peak memory of a trial, and the growth of it by steps."""

    def __init__(self) -> None:
        self.held_bytes = 0
        self._steps = self._growth_bytes = 0
        self._noted = [(0, 0)]  # samples, and growth of the peak by the steps up to there
        self.restart()

    def restart(self) -> None:
        """Notes that a new process begins, whose memory grows from the start."""
        self._growth = trends.Series()

    def count(self, samples: int, held_bytes: int, *, is_step: bool) -> None:
        """Counts the memory held at `samples`.

        `is_step`: an ordinary step, so growth of the peak by it may repeat with any later step.
        """
        added, self.held_bytes = max(0, held_bytes - self.held_bytes), max(held_bytes, self.held_bytes)
        if not is_step:
            return
        self._steps += 1
        self._growth_bytes += added
        self._growth.add(samples, self._growth_bytes)
        if self._growth_bytes - self._noted[-1][1] > _FINE_SHARE * self.held_bytes:
            self._noted.append((samples, self._growth_bytes))

    def is_rising(self, samples: int) -> bool:
        """Returns True if steps raised the peak by more than 2% in the last third of `samples`."""
        if self._steps < _RISING_STEPS:
            return False
        early = (1 - _RISING_PART) * samples
        late_bytes = self._growth_bytes - max(grown for at, grown in self._noted if at <= early)
        return late_bytes > _RISING_SHARE * (self.held_bytes - late_bytes)

    def slope(self) -> Slope | None:
        """Returns the growth of the peak by steps of this process, in bytes per sample."""
        return trends.slope(self._growth.points)


class CountedFlops:
    """The FLOPs of the steps in which they were counted, by number format."""

    def __init__(self) -> None:
        self._counted: Counter[str] = Counter()
        self._samples = 0

    def count(self, step_flops: object, samples: int) -> None:
        if isinstance(step_flops, Mapping) and samples > 0:
            self._counted.update({str(kind): int(units.number(n) or 0) for kind, n in step_flops.items()})
            self._samples += samples

    def per_sample(self) -> dict[str, float]:
        return {kind: flops / self._samples for kind, flops in self._counted.items()}
