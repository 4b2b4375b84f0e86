"""Tests whether quality is kept: non-inferiority with three answers, from two configurations' runs. Pure.

Two sources of error count: the scatter between runs with different seeds, and, if the workload reports a
score for each item, the scatter of the items' differences.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import NormalDist

from autotune.core.measurement import Evaluation
from autotune.core.trial import Trial
from autotune.judging.measurement import curves, estimates
from autotune.judging.measurement.estimates import Figure, student_t
from autotune.space.sections import Objective

LEVEL = 0.95
_FEWEST_RUNS = 3  # for a claim: two say little about the scatter
_LEAST_NOISE = 0.001  # of the gain: runs with identical results are not independent
_MOST_RUNS = 64  # more are not worth training


class QualityAnswer(StrEnum):
    KEPT = "kept"
    LOST = "lost"
    UNDECIDED = "not decided"


@dataclass(frozen=True)
class Noise:
    """The standard deviation of the final quality between equal runs, in its own units."""

    deviation: float
    degrees: int


@dataclass(frozen=True)
class KeptQuality:
    """The quality of a configuration relative to a reference."""

    answer: QualityAnswer
    quality: float
    reference: float
    share: Figure  # of the reference's gain; the interval is the test's, and missing if the noise is unknown
    gain: float  # the reference's, in units of the quality
    runs_needed: int | None = None  # of each side, to decide the answer; None if only more items would


def early_level(repeats: int) -> float:
    """Returns the confidence level of each look at the runs, after 3, 4, ... `repeats` of them.

    Settings exactly at the margin then pass once in twenty: in simulations of up to 12 runs, 3.5% to 5.1% of
    40,000 did (Pocock, 1977, does the same for a known variance).
    """
    looks = max(1, repeats - _FEWEST_RUNS + 1)
    return 1 - (1 - LEVEL) / (1 + 1.25 * math.log(looks))


def compare(
    ours: Sequence[Trial],
    theirs: Sequence[Trial],
    keep: float,
    noise: Noise | None,
    *,
    start: float | None = None,
    level: float = LEVEL,
) -> KeptQuality | None:
    """Tests whether the runs `ours` keep a share of `keep` of the gain of the runs `theirs`.

    Returns None if one side has no quality. The answer is UNDECIDED without a known noise. KEPT is tested at
    `level`, LOST at 95%.
    """
    a, b = qualities(ours), qualities(theirs)
    if not a or not b:
        return None
    quality, reference = statistics.fmean(a), statistics.fmean(b)
    if not reference:
        return None
    share, unit = curves.share(quality, reference, start), curves.gain(reference, start)
    noise = noise and Noise(max(noise.deviation, _LEAST_NOISE * unit), noise.degrees)
    error = _item_error(ours, theirs)
    half, lost_half = (
        _half(len(a), len(b), noise, error, at) / unit if noise else math.inf for at in (level, LEVEL)
    )
    kept = KeptQuality(QualityAnswer.UNDECIDED, quality, reference, estimates.around(share, half), unit)
    if share - half >= keep:
        return replace(kept, answer=QualityAnswer.KEPT)
    if share + lost_half < keep:
        return replace(kept, answer=QualityAnswer.LOST)
    needed = runs_needed(ours, theirs, keep, noise, start, level=level) if noise else None
    return replace(kept, runs_needed=needed)


def runs_needed(
    ours: Sequence[Trial],
    theirs: Sequence[Trial],
    keep: float,
    noise: Noise,
    start: float | None,
    *,
    level: float = LEVEL,
) -> int | None:
    """Returns how many runs of each side would decide the test at `level`, if the means stay as they are.

    Both sides must have a quality. None if no number would decide, because too few items were scored.
    """
    quality, reference = statistics.fmean(qualities(ours)), statistics.fmean(qualities(theirs))
    gap, error = abs(quality - curves.least(keep, reference, start)), _item_error(ours, theirs)
    counts = range(2, _MOST_RUNS + 1)
    return next((n for n in counts if _half(n, n, _with(noise, n), error, level) < gap), None)


def format_share(share: Figure, goal: Objective, gain: float) -> str:
    """Formats the interval of a `share`: `97% to 103% of the baseline's improvement`.

    With an absolute slack it is `0.031 below to 0.02 above the baseline's`.
    """
    if share.low is None or share.high is None:
        return "how much equal runs differ is not known"
    if goal.within is None:
        return f"{share.low:.1%} to {share.high:.1%} of the baseline's improvement"
    apart = ((end - 1) * gain for end in (share.low, share.high))
    ends = (f"{abs(more):.3g} {'above' if goal.turned(more) > 0 else 'below'}" for more in apart)
    return f"{' to '.join(ends)} the baseline's"


def format_limit(name: str, keep: float | None, within: float | None, *, minimize: bool = False) -> str:
    """Formats the lowest quality that is required: `95% of the baseline's improvement in bleu_4`.

    With an absolute slack it is `0.02 below the baseline's bleu_4`, and `any bleu_4` if nothing is required.
    """
    if within is not None:
        return f"{within:g} {'above' if minimize else 'below'} the baseline's {name}"
    return f"{100 * keep:.3g}% of the baseline's improvement in {name}" if keep else f"any {name}"


def format_requirement(goal: Objective) -> str:
    """Formats the requirement on a winner: `keeps 95% of the baseline's improvement in bleu_4`."""
    if goal.within is not None:
        return f"keeps {goal.quality} within {goal.within:g} of the baseline's"
    kept = format_limit(goal.quality, goal.keep, None)
    return f"{'has' if goal.takes_any_quality else 'keeps'} {kept}"


def in_users_sign(value: float | None, goal: Objective) -> float | None:
    return None if value is None else goal.turned(value)


def figure_in_users_sign(figure: Figure | None, goal: Objective) -> Figure | None:
    """Returns a quality and its interval in the user's sign."""
    if figure is None or not goal.minimize:
        return figure
    low, high = in_users_sign(figure.high, goal), in_users_sign(figure.low, goal)
    return Figure(goal.turned(figure.value), low, high)


def curve_in_users_sign(curve: Sequence[Evaluation], goal: Objective) -> tuple[Evaluation, ...]:
    """Returns a curve with qualities and chance in the user's sign."""
    return tuple(
        replace(point, quality=goal.turned(point.quality), chance=in_users_sign(point.chance, goal))
        for point in curve
    )


def qualities(runs: Sequence[Trial]) -> list[float]:
    """Returns the final quality of each run that has one."""
    return [final for run in runs if (final := curves.end_quality(run.measurement)) is not None]


def noise(groups: Sequence[Sequence[Trial]]) -> Noise | None:
    """Returns the noise of final qualities, pooled over `groups` of equal runs; None if no two are equal."""
    finals = [qualities(runs) for runs in groups]
    degrees = sum(len(values) - 1 for values in finals if values)
    if not degrees:
        return None
    squares = (statistics.variance(values) * (len(values) - 1) for values in finals if len(values) > 1)
    return Noise(math.sqrt(math.fsum(squares) / degrees), degrees)


def half_width(runs: int, noise: Noise) -> float:
    """Returns the half-width of the interval of a difference between two sides, each with `runs` runs."""
    return _half(runs, runs, _with(noise, runs), 0.0)


def _half(ours: int, theirs: int, noise: Noise, item_error: float, level: float = LEVEL) -> float:
    """Returns the half-width of the interval of a difference, one-sided at `level` to either side."""
    times = student_t(2 * level - 1, noise.degrees)
    runs = times * noise.deviation * math.sqrt(1 / ours + 1 / theirs)
    return math.hypot(runs, NormalDist().inv_cdf(level) * item_error)


def _item_error(ours: Sequence[Trial], theirs: Sequence[Trial]) -> float:
    """Returns the standard error of the difference from the items scored on both sides, 0 without items.

    It is the closed form of the paired bootstrap over items (Koehn, 2004) for a mean.
    """
    a, b = _items(ours), _items(theirs)
    if len(a) != len(b) or len(a) < 2:
        return 0.0
    apart = [x - y for x, y in zip(a, b, strict=True)]
    return statistics.stdev(apart) / math.sqrt(len(apart))


def _items(runs: Sequence[Trial]) -> list[float]:
    scored = [run.measurement.items for run in runs if run.measurement.items]
    if not scored or len({len(items) for items in scored}) > 1:
        return []
    return [statistics.fmean(values) for values in zip(*scored, strict=True)]


def _with(noise: Noise, runs: int) -> Noise:
    return Noise(noise.deviation, max(noise.degrees, 2 * runs - 2))
