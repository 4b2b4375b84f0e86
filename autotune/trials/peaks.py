"""What a trial has held and computed, counted from its records. Pure."""

from collections import Counter
from collections.abc import Mapping

from autotune.core import units
from autotune.core.trial import Slope
from autotune.judging import trends

_RISING_SHARE, _RISING_PART = 0.02, 1 / 3  # of the peak, and of a trial's samples
_RISING_STEPS = 12  # with fewer, the last third may still be of the first steps, which allocate what all need
_FINE_SHARE = 0.0025  # what a peak grows by before it is noted: a leak shall not make a note with every step


class HeldMemory:
    """The most that a trial has held, and where in it steps have raised that."""

    def __init__(self) -> None:
        self.held_bytes = 0
        self._steps = self._growth_bytes = 0
        self._noted = [(0, 0)]  # samples, and what all steps up to there had added to the peak
        self.restart()

    def restart(self) -> None:
        """A new process begins: what it holds grows from the start."""
        self._growth = trends.Series()

    def count(self, samples: int, held_bytes: int, *, is_step: bool) -> None:
        """`is_step` says that it has to be expected again and again, should it add to the peak."""
        added, self.held_bytes = max(0, held_bytes - self.held_bytes), max(held_bytes, self.held_bytes)
        if not is_step:
            return
        self._steps += 1
        self._growth_bytes += added
        self._growth.add(samples, self._growth_bytes)
        if self._growth_bytes - self._noted[-1][1] > _FINE_SHARE * self.held_bytes:
            self._noted.append((samples, self._growth_bytes))

    def is_rising(self, samples: int) -> bool:
        """Whether steps have raised it by more than 2% in the last third of a trial of so many `samples`."""
        if self._steps < _RISING_STEPS:
            return False
        early = (1 - _RISING_PART) * samples
        late_bytes = self._growth_bytes - max(grown for at, grown in self._noted if at <= early)
        return late_bytes > _RISING_SHARE * (self.held_bytes - late_bytes)

    def slope(self) -> Slope | None:
        """By how many bytes steps of this process raise it, for each sample."""
        return trends.slope(self._growth.points)


class CountedFlops:
    """The operations of the steps in which they were counted, by the kind of their numbers."""

    def __init__(self) -> None:
        self._counted: Counter[str] = Counter()
        self._samples = 0

    def count(self, found: object, samples: int) -> None:
        if isinstance(found, Mapping) and samples > 0:
            self._counted.update({str(kind): int(units.number(n) or 0) for kind, n in found.items()})
            self._samples += samples

    def per_sample(self) -> dict[str, float]:
        return {kind: flops / self._samples for kind, flops in self._counted.items()}
