"""Estimates the trend of a figure over the samples trained, and when memory will be full. Pure.

A series has the `Point`s of one process in order; a resumed training starts a new one. A cache that fills
also counts as growth: warn only after more than an epoch.
"""

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.core.measurement import Measurement, Slope
from autotune.judging.measurement.estimates import half_interval

_SETTLING = 1 / 3  # share left out at the start: allocators grow, caches fill, modules are imported
_BLOCKS = 10
_MOST_POINTS = 400
_FEWEST_IN_BLOCK = 2
_SLOWING = 0.75  # growth in the second half over that in the first, below which it is slowing
_FAR = 100  # a training of unknown length is assumed to be so many times as long as the trial


@dataclass(frozen=True)
class Point:
    """A figure, such as bytes held, after `samples` in total."""

    samples: float
    value: float


class Series:
    """The points of a figure so far, evenly thinned out to a few hundred."""

    def __init__(self) -> None:
        self.points: list[Point] = []
        self._seen, self._every = 0, 1

    def add(self, samples: float, value: float) -> None:
        if self._seen % self._every == 0:
            self.points.append(Point(samples, value))
        if len(self.points) > _MOST_POINTS:
            self.points, self._every = self.points[::2], 2 * self._every
        self._seen += 1


def slope(series: Sequence[Point]) -> Slope | None:
    """Returns the growth of the figure over the last two thirds of the series; None for under 30 points.

    These are cut into ten blocks. The slope is the mean of the nine increments between the means of
    neighbouring blocks, with Student's 95% interval. Block means remove the correlation of neighbouring
    points (Law & Kelton, Simulation Modeling and Analysis, section 9.5.3). No line is fitted, because memory
    moves like a random walk: its increments are independent, but residuals of a line are not, and its
    interval would be too narrow (Granger & Newbold, Spurious regressions in econometrics, Journal of
    Econometrics 2, 1974). For noise that does not persist, the interval is wider than necessary.
    """
    points = series[math.ceil(_SETTLING * len(series)) :]
    if len(points) < _BLOCKS * _FEWEST_IN_BLOCK:
        return None
    edges = [round(i * len(points) / _BLOCKS) for i in range(_BLOCKS + 1)]
    blocks = [points[a:b] for a, b in itertools.pairwise(edges)]
    first, last = (statistics.fmean(p.samples for p in block) for block in (blocks[0], blocks[-1]))
    means = [statistics.fmean(p.value for p in block) for block in blocks]
    rises = [b - a for a, b in itertools.pairwise(means)]
    if last <= first:
        return None
    step = (last - first) / len(rises)
    rise, half = statistics.fmean(rises), half_interval(rises)
    part = len(rises) // 2
    is_slowing = sum(rises[-part:]) < _SLOWING * sum(rises[:part])
    return Slope(rise / step, (rise - half) / step, (rise + half) / step, is_slowing)


def full_at(per_sample: float, held: float, limit: float, samples: float) -> float:
    """Returns the samples at which a figure that is `held` after `samples` reaches `limit`, or infinity."""
    return samples + max(0.0, limit - held) / per_sample if per_sample > 0 else math.inf


def is_growing(slope: Slope) -> bool:
    """Returns True if a figure certainly grows, and is not slowing down."""
    return slope.low > 0 and not slope.is_slowing


def will_fill(slope: Slope, held: float, limit: float, samples: float, total: float) -> bool:
    """Returns True if a figure certainly reaches `limit` before a training of `total` samples ends."""
    return is_growing(slope) and full_at(slope.low, held, limit, samples) < total


def training_full_at(trial: Measurement, training_samples: int | None) -> float | None:
    """Returns the samples at which a training like the trial fills its memory; None if not certain.

    The limit is the trial's or, without one, the memory that the machine had left.
    """
    slope, left_bytes = trial.memory_slope, trial.telemetry.get("host_memory_free_bytes")
    if trial.memory_limit_bytes and trial.peak_memory_bytes is not None:
        left_bytes = max(0.0, trial.memory_limit_bytes - trial.peak_memory_bytes)
    if slope is None or left_bytes is None:
        return None
    total = training_samples or _FAR * trial.samples
    if not will_fill(slope, 0, left_bytes, trial.samples, total):
        return None
    return full_at(slope.per_sample, 0, left_bytes, trial.samples)
