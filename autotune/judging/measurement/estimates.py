"""Measured values with confidence intervals, and their arithmetic. Pure."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Self

from autotune.core.measurement import Throughput


@dataclass(frozen=True)
class Figure:
    """A measured value and its interval; `low` and `high` are None if unknown."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def part(self) -> float | None:
        """Half-width of the interval as a share of the value, None without an interval."""
        if self.low is None or self.high is None or not self.value:
            return None
        return (self.high - self.low) / 2 / abs(self.value)

    def is_above(self, bound: float) -> bool:
        """Returns True if the whole interval is above `bound`; False without an interval."""
        return self.low is not None and self.low > bound

    def is_below(self, bound: float) -> bool:
        """Returns True if the whole interval is below `bound`; False without an interval."""
        return self.high is not None and self.high < bound

    def scaled(self, times: float) -> Self:
        low, high = (None if end is None else end * times for end in (self.low, self.high))
        return replace(self, value=self.value * times, low=low, high=high)


def bounded(value: float, low: float | None, high: float | None) -> Figure:
    """Returns a figure with an interval if both ends are finite numbers, else without one."""
    if low is None or high is None or not math.isfinite(low) or not math.isfinite(high):
        return Figure(value)
    return Figure(value, low, high)


def around(value: float, half: float | None, lowest: float = -math.inf) -> Figure:
    """Returns `value` with an interval of `half` to either side, if that is finite."""
    if half is None or not math.isfinite(half):
        return Figure(value)
    return Figure(value, max(lowest, value - half), value + half)


def mean(values: Sequence[float]) -> Figure | None:
    """Returns the mean of independent `values`; with its 95% interval, if they differ and all are finite."""
    if not values:
        return None
    is_known = len(set(values)) > 1 and all(map(math.isfinite, values))
    return around(statistics.fmean(values), half_interval(values) if is_known else None)


def throughput_figure(throughput: Throughput | None) -> Figure | None:
    """Returns the throughput of a single run, with the interval of its own steps."""
    return around(throughput.samples_per_s, throughput.half_width_per_s, 0.0) if throughput else None


def multiply(first: Figure, second: Figure) -> Figure:
    """Returns the product of two independent figures."""
    return _spread(first.value * second.value, first.part, second.part)


def divide(numerator: Figure, denominator: Figure) -> Figure:
    """Returns the ratio of two independent positive figures."""
    return _spread(numerator.value / denominator.value, numerator.part, denominator.part)


def _spread(value: float, *parts: float | None) -> Figure:
    """Returns `value` with relative errors combined in logarithms, so that no end is below 0."""
    errors = [part for part in parts if part is not None]
    if len(errors) < len(parts):
        return Figure(value)
    apart = math.exp(min(700.0, math.hypot(*errors)))
    return bounded(value, value / apart, value * apart)


def half_interval(values: Sequence[float], level: float = 0.95) -> float:
    """Returns the half-width of Student's two-sided interval of the mean of two or more `values`."""
    return student_t(level, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))


@lru_cache
def student_t(level: float, degrees: int) -> float:
    """Returns the two-sided quantile of Student's t at `level`.

    The distribution is a finite sum in the angle atan(t / sqrt(degrees)) (Abramowitz & Stegun, 26.7.3 and
    26.7.4). Importing scipy would take half a second, too long for `status`.
    """
    low, high = 0.0, math.pi / 2
    for _ in range(60):  # to the last bit
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, degrees) < level else (low, middle)
    return math.sqrt(degrees) * math.tan(low)


def _within(angle: float, degrees: int) -> float:
    """Returns the probability of Student's t within `angle` to either side."""
    is_odd = degrees % 2
    term = math.cos(angle) if is_odd else 1.0
    total = term if degrees > 1 else 0.0
    for i in range(2 + is_odd, degrees, 2):
        term *= math.cos(angle) ** 2 * (i - 1) / i
        total += term
    return (angle + math.sin(angle) * total) * 2 / math.pi if is_odd else math.sin(angle) * total
