"""Is the quality kept? A test of non-inferiority with three answers, from two configurations' runs. Pure.

Runs differ by their seed, and what was scored is a sample, too. Both count: the scatter between equal runs,
and, where the workload reports how each item was scored, that of the items' differences.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import NormalDist

from autotune.core.trial import Evaluation, Trial
from autotune.judging import curves
from autotune.judging.estimates import Figure
from autotune.judging.measure import student_t
from autotune.space.sections import Objective

LEVEL = 0.95
_HIGHER_IS_BETTER = Objective()
_MOST_RUNS = 64  # more than is worth training to know


class Answer(StrEnum):
    """Whether a quality is kept."""

    KEPT = "kept"
    LOST = "lost"
    UNDECIDED = "not decided"


@dataclass(frozen=True)
class Noise:
    """The relative standard deviation between runs that differ in their seed, with its degrees of freedom."""

    deviation: float
    degrees: int


@dataclass(frozen=True)
class Kept:
    """The quality of a configuration relative to the reference's: a `share` of it, from `low` to `high`.

    The interval is of 95%. Not decided, `runs_needed` of both may decide it; None where only more items to
    score would.
    """

    answer: Answer
    quality: float
    reference: float
    share: float
    low: float
    high: float
    runs_needed: int | None = None


def compare(ours: Sequence[Trial], theirs: Sequence[Trial], keep: float, noise: Noise | None) -> Kept | None:
    """Whether the runs `ours` keep a share of `keep` of the quality of the runs `theirs`.

    None where one of them has no run. Without a known noise nothing is decided.
    """
    a, b = qualities(ours), qualities(theirs)
    if not a or not b:
        return None
    quality, reference = statistics.fmean(a), statistics.fmean(b)
    if not reference:
        return None
    share = curves.share(quality, reference)
    half = _half(len(a), len(b), noise, _item_error(ours, theirs)) if noise else math.inf
    low, high = share - half, share + half
    answer = Answer.KEPT if low >= keep else Answer.LOST if high < keep else Answer.UNDECIDED
    needed = runs_needed(ours, theirs, keep, noise) if noise and answer is Answer.UNDECIDED else None
    return Kept(answer, quality, reference, share, low, high, needed)


def runs_needed(ours: Sequence[Trial], theirs: Sequence[Trial], keep: float, noise: Noise) -> int | None:
    """How many runs of both would decide whether `ours` keep that share, were the qualities to stay.

    None where no number would, because too few items were scored, or one side has no quality.
    """
    a, b = qualities(ours), qualities(theirs)
    if not a or not b or not (reference := statistics.fmean(b)):
        return None
    gap = abs(curves.share(statistics.fmean(a), reference) - keep)
    return _runs_needed(gap, noise, _item_error(ours, theirs))


def between(low: float, high: float, reference: float, goal: Objective = _HIGHER_IS_BETTER) -> str:
    """`97% to 103% of it at 95%`, where shares of the `reference` lie, or that it is not known.

    Of one that is below 0, or to be minimised, `3% below it to 2% above it`; where an absolute slack is asked
    for `0.031 below it to 0.02 above it`.
    """
    if not math.isfinite(low):
        return "it is not known how far equal runs differ"
    if _is_share(reference, goal.within, minimize=goal.minimize is not None):
        return f"{low:.0%} to {high:.0%} of it at 95%"
    return " to ".join(_apart(share - 1, reference, goal) for share in (low, high)) + " at 95%"


def _apart(part: float, reference: float, goal: Objective) -> str:
    """How far a quality lies from the `reference` that is better by a `part` of it."""
    size = f"{abs(part):.0%}" if goal.within is None else f"{abs(part * reference):.3g}"
    return f"{size} {'above' if goal.turned(part) > 0 else 'below'} it"


def limit(
    keep: float | None,
    name: str,
    reference: float | None,
    *,
    within: float | None = None,
    minimize: bool = False,
) -> str:
    """`95% of the baseline's bleu_4`, the least that is kept; of a reference below 0 `5% below the ...`.

    Of one to minimise `5% above the ...`, and of an absolute slack `0.02 below the ...`; `any bleu_4` where
    nothing is. The `reference` is the baseline's in the user's own sign.
    """
    if within is None and not keep:
        return f"any {name}"
    if _is_share(reference, within, minimize=minimize):
        return f"{100 * (keep or 0.0):.3g}% of the baseline's {name}"
    room = f"{100 * (1 - (keep or 0.0)):.3g}%" if within is None else f"{within:g}"
    return f"{room} {'above' if minimize else 'below'} the baseline's {name}"


def keeps(
    keep: float | None,
    name: str,
    reference: float | None,
    *,
    within: float | None = None,
    minimize: bool = False,
) -> str:
    """What a winner does: `keeps 95% of the baseline's bleu_4`, or `is at most 5% above the ...`."""
    if within is None and not keep:
        return f"has {limit(keep, name, reference)}"
    verb = "keeps" if _is_share(reference, within, minimize=minimize) else "is at most"
    return f"{verb} {limit(keep, name, reference, within=within, minimize=minimize)}"


def _is_share(reference: float | None, within: float | None, *, minimize: bool) -> bool:
    """Whether what is kept can be called a share: less of a loss, or of what is below 0, is no worse."""
    return within is None and not minimize and (reference is None or reference > 0)


def shown(value: float | None, goal: Objective) -> float | None:
    """A quality in the user's own sign."""
    return None if value is None else goal.turned(value)


def shown_figure(figure: Figure | None, goal: Objective) -> Figure | None:
    """The same with its interval, whose ends change places where the sign is turned."""
    if figure is None or not goal.minimize:
        return figure
    low, high = shown(figure.high, goal), shown(figure.low, goal)
    return Figure(goal.turned(figure.value), low, high)


def shown_curve(curve: Sequence[Evaluation], goal: Objective) -> tuple[Evaluation, ...]:
    """A curve whose qualities, and what chance reaches, are in the user's own sign."""
    return tuple(
        replace(point, quality=goal.turned(point.quality), chance=shown(point.chance, goal))
        for point in curve
    )


def qualities(runs: Sequence[Trial]) -> list[float]:
    """The quality that each run ended with."""
    return [found for run in runs if (found := curves.ended_with(run.measurement)) is not None]


def noise(groups: Sequence[Sequence[Trial]]) -> Noise | None:
    """The noise of `groups` of equal runs, from the later half of their curves; None where no two are equal.

    Few runs read low by chance: it is never taken to be under 2%, as elsewhere.
    """
    found: list[tuple[float, int]] = []
    for runs in groups:
        stages = curves.stages([run.measurement.curve for run in runs if run.measurement.curve])
        found += [curves.squares(points) for points in stages[len(stages) // 2 :] if len(points) > 1]
    degrees = sum(free for _, free in found)
    if not degrees:
        return None
    return Noise(max(curves.LEAST_NOISE, math.sqrt(math.fsum(s for s, _ in found) / degrees)), degrees)


def half_width(runs: int, noise: Noise) -> float:
    """Half of the interval of a share that so many runs of both sides would have."""
    return _half(runs, runs, _with(noise, runs), 0.0)


def _half(ours: int, theirs: int, noise: Noise, item_error: float) -> float:
    """Half of the interval of a share, one-sided at 95% to either side."""
    times = student_t(2 * LEVEL - 1, noise.degrees)
    runs = times * noise.deviation * math.sqrt(1 / ours + 1 / theirs)
    return math.hypot(runs, NormalDist().inv_cdf(LEVEL) * item_error)


def _item_error(ours: Sequence[Trial], theirs: Sequence[Trial]) -> float:
    """The relative standard error of the difference, from the items that both were scored on.

    It is the result of resampling the items in pairs (Koehn, 2004): of a mean, the bootstrap's standard error
    is known in closed form. 0 where the items are not reported.
    """
    a, b = _items(ours), _items(theirs)
    if len(a) != len(b) or len(a) < 2:
        return 0.0
    reference = abs(statistics.fmean(b))
    apart = [x - y for x, y in zip(a, b, strict=True)]
    return statistics.stdev(apart) / math.sqrt(len(apart)) / reference if reference else 0.0


def _items(runs: Sequence[Trial]) -> list[float]:
    """What every item was scored on average over `runs`."""
    known = [run.measurement.items for run in runs if run.measurement.items]
    if not known or len({len(items) for items in known}) > 1:
        return []
    return [statistics.fmean(values) for values in zip(*known, strict=True)]


def _runs_needed(gap: float, noise: Noise, item_error: float) -> int | None:
    """How many runs of each side bring the interval below `gap`."""
    fits = (n for n in range(2, _MOST_RUNS + 1) if _half(n, n, _with(noise, n), item_error) < gap)
    return next(fits, None)


def _with(noise: Noise, runs: int) -> Noise:
    return Noise(noise.deviation, max(noise.degrees, 2 * runs - 2))
