"""Where a figure is heading: its slope over the work done, and when memory is full at that. Pure.

A series is a sequence of `Point`, in the order of its samples, of one process: what a training resumed in a
new one holds begins anew. What it shows is a `Slope`. `full_at` extrapolates it to a limit, and
`will_fill` says whether that is certainly before the training ends. What has only grown like a line so far is
called growing, a cache that is being filled included: for a warning, ask once there is more than an epoch.
"""

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.core.measurement import Measurement, Slope
from autotune.judging.measurement.estimates import half_interval

_SETTLING = 1 / 3  # of a series: allocators grow, caches fill, modules are imported
_BLOCKS = 10
_MOST_POINTS = 400
_FEWEST_IN_BLOCK = 2
_SLOWING = 0.75
_FAR = 100  # times what a trial has trained: the longest that a training of unknown length may be


@dataclass(frozen=True)
class Point:
    """A figure, such as bytes held, after so many samples in all."""

    samples: float
    value: float


class Series:
    """The points of a figure so far; of many some hundreds, evenly."""

    def __init__(self) -> None:
        self._points: list[Point] = []
        self._seen, self._every = 0, 1

    @property
    def points(self) -> Sequence[Point]:
        return self._points

    def add(self, samples: float, value: float) -> None:
        """Adds what the figure is after so many samples in all."""
        if self._seen % self._every == 0:
            self._points.append(Point(samples, value))
        if len(self._points) > _MOST_POINTS:
            self._points, self._every = self._points[::2], 2 * self._every
        self._seen += 1


@dataclass(frozen=True)
class Full:
    """After how many samples in all a limit is reached, from `low` to `high`; infinite if it never is."""

    samples: float
    low: float
    high: float


def slope(series: Sequence[Point]) -> Slope | None:
    """Returns how fast the figure grows, by the last two thirds of the series; None for under 30 points.

    These are cut into ten blocks. The slope is the mean of the nine increments from the mean of a block to
    the mean of the next one, and its 95% interval is Student's of these increments. Block means take the
    correlation of neighbouring points away (Law & Kelton, Simulation Modeling and Analysis, section 9.5.3).
    Increments are taken, and not a line fitted, because noise of memory is made of steps that stay, as a
    random walk has: its increments are independent, where residuals of a line are not and its interval is
    too narrow (Granger & Newbold, Spurious regressions in econometrics, Journal of Econometrics 2, 1974).
    Of noise that does not stay the interval is wider than it need be.
    """
    means = _block_means(series[math.ceil(_SETTLING * len(series)) :])
    rises = [b.value - a.value for a, b in itertools.pairwise(means)]
    if not rises or means[-1].samples <= means[0].samples:
        return None
    step = (means[-1].samples - means[0].samples) / len(rises)
    rise, half = statistics.fmean(rises), half_interval(rises)
    return Slope(rise / step, (rise - half) / step, (rise + half) / step, _is_slowing(rises))


def _block_means(points: Sequence[Point]) -> list[Point]:
    if len(points) < _BLOCKS * _FEWEST_IN_BLOCK:
        return []
    edges = [round(i * len(points) / _BLOCKS) for i in range(_BLOCKS + 1)]
    blocks = [points[a:b] for a, b in itertools.pairwise(edges)]
    return [
        Point(statistics.fmean(p.samples for p in block), statistics.fmean(p.value for p in block))
        for block in blocks
    ]


def _is_slowing(rises: Sequence[float]) -> bool:
    """Returns True if growth was clearly less in the second half of the blocks than in the first."""
    half = len(rises) // 2
    return sum(rises[-half:]) < _SLOWING * sum(rises[:half])


def full_at(found: Slope, held: float, limit: float, samples: float) -> Full:
    """Returns when a figure that is at `held` after `samples` reaches `limit`, growing as it did."""
    left = max(0.0, limit - held)
    reached = (samples + left / rate if rate > 0 else math.inf for rate in _rates(found))
    return Full(*reached)


def _rates(found: Slope) -> tuple[float, float, float]:
    return found.per_sample, found.high, found.low


def is_growing(found: Slope) -> bool:
    """Returns True if a figure grows with confidence, and continues to grow as fast as before."""
    return found.low > 0 and not found.is_slowing


def will_fill(found: Slope, held: float, limit: float, samples: float, total: float) -> bool:
    """Returns True if it surely grows, and reaches `limit` before a training of `total` samples ends."""
    return is_growing(found) and full_at(found, held, limit, samples).high < total


def training_full_at(shown: Measurement, training_samples: int | None) -> Full | None:
    """Returns after how many samples a training like the trial has filled its memory; None if not certain.

    It may take the trial's limit or, without one, what the machine had left. A training whose
    length is not known is taken to be of a hundred trials.
    """
    slope, left_bytes = shown.memory_slope, _left_bytes(shown)
    if slope is None or left_bytes is None:
        return None
    total = training_samples or _FAR * shown.samples
    if not will_fill(slope, 0, left_bytes, shown.samples, total):
        return None
    return full_at(slope, 0, left_bytes, shown.samples)


def _left_bytes(shown: Measurement) -> float | None:
    """Returns what was left at the trial's peak, None if that is not known."""
    if shown.memory_limit_bytes and shown.peak_memory_bytes is not None:
        return max(0.0, shown.memory_limit_bytes - shown.peak_memory_bytes)
    return shown.telemetry.get("host_memory_free_bytes")
