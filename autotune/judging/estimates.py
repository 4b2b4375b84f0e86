"""A value that was measured, and how sure it is: one form for all judging and every surface. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from autotune.core.measurement import Throughput
from autotune.judging.measure import half_interval


@dataclass(frozen=True)
class Figure:
    """A measured value and its interval; `low` and `high` are None if unknown."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def part(self) -> float | None:
        """Half of its interval as a share of the value, None if it has none."""
        if self.low is None or self.high is None or not self.value:
            return None
        return (self.high - self.low) / 2 / abs(self.value)

    def is_above(self, bound: float) -> bool:
        """Returns True if all of its interval is above `bound`: never without one."""
        return self.low is not None and self.low > bound

    def is_below(self, bound: float) -> bool:
        """Returns True if all of its interval is below `bound`: never without one."""
        return self.high is not None and self.high < bound

    def scaled(self, times: float) -> Self:
        """Returns so many `times` the figure, with its interval."""
        low, high = (None if end is None else end * times for end in (self.low, self.high))
        return replace(self, value=self.value * times, low=low, high=high)


def within(value: float, low: float | None, high: float | None) -> Figure:
    """Returns a figure whose interval counts only if both of its ends are numbers."""
    if low is None or high is None or not math.isfinite(low) or not math.isfinite(high):
        return Figure(value)
    return Figure(value, low, high)


def mean(values: Sequence[float]) -> Figure | None:
    """Returns the mean of `values` from independent runs, with its 95% interval if there are two or more.

    Runs that read the very same are not independent: they say nothing of how far others would lie apart.
    """
    if not values:
        return None
    middle = math.fsum(values) / len(values)
    if len(set(values)) < 2:
        return Figure(middle)
    half = half_interval(values)
    return Figure(middle, middle - half, middle + half)


def of_run(throughput: Throughput | None) -> Figure | None:
    """Returns the throughput of a single run, with the interval of its own steps."""
    if throughput is None:
        return None
    rate, half = throughput.samples_per_s, throughput.half_width_per_s
    return Figure(rate) if half is None else Figure(rate, max(0.0, rate - half), rate + half)


def times(one: Figure, other: Figure) -> Figure:
    """The product of two figures that know nothing of each other."""
    return _spread(one.value * other.value, one.part, other.part)


def over(one: Figure, other: Figure) -> Figure:
    """The ratio of two positive figures that know nothing of each other."""
    return _spread(one.value / other.value, one.part, other.part)


def _spread(value: float, *parts: float | None) -> Figure:
    """`value` with an interval: the logarithms' squares add up, so that no end is below 0."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return Figure(value)
    apart = math.exp(min(700.0, math.hypot(*known)))
    return within(value, value / apart, value * apart)
