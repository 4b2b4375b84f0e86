"""Measured values as the figures of a report, with their intervals."""

import math
from collections.abc import Sequence

from autotune.core.trial import Throughput
from autotune.judging import objective
from autotune.judging.measure import half_interval
from autotune.report.model import Figure


def speed(runs: Sequence[Throughput]) -> Figure | None:
    """Samples per second over `runs`, their interval from run to run; of a single run its own."""
    if len(runs) != 1:
        return mean([run.samples_per_s for run in runs])
    (run,) = runs
    half = run.half_width_per_s
    ends = (None, None) if half is None else (max(0.0, run.samples_per_s - half), run.samples_per_s + half)
    return within(run.samples_per_s, *ends)


def mean(values: Sequence[float]) -> Figure | None:
    """The mean of `values` from independent runs, with its 95% interval where there are two or more.

    Runs that read the very same are not independent: they say nothing of how far others would lie apart.
    """
    middle = objective.mean(values)
    if middle is None or len(set(values)) < 2:
        return None if middle is None else Figure(middle)
    half = half_interval(values)
    return Figure(middle, middle - half, middle + half)


def within(value: float, low: float | None, high: float | None) -> Figure:
    """A figure whose interval counts only where both of its ends are numbers."""
    if low is None or high is None or not math.isfinite(low) or not math.isfinite(high):
        return Figure(value)
    return Figure(value, low, high)
