"""Is the quality kept? A test of non-inferiority with three answers, from two configurations' runs. Pure.

Runs differ by their seed, and what was scored is a sample, too. Both count: the scatter between equal runs,
and, if the workload reports how each item was scored, that of the items' differences.
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
_FEWEST_RUNS = 3  # of a claim: two say little of how far equal runs lie apart
_HIGHER_IS_BETTER = Objective()
_LEAST_NOISE = 0.001  # of the gain: runs that read the very same are not independent
_MOST_RUNS = 64  # more than is worth training to know


class Answer(StrEnum):
    """The answer to the question whether a quality is kept."""

    KEPT = "kept"
    LOST = "lost"
    UNDECIDED = "not decided"


@dataclass(frozen=True)
class Noise:
    """The standard deviation of the final quality of equal runs, in its units, and its degrees of freedom."""

    deviation: float
    degrees: int


@dataclass(frozen=True)
class Kept:
    """The quality of a configuration relative to the reference's: a `share` of its gain.

    Its interval is of 95% to either side, None if the noise is not known. If it is not decided, `runs_needed`
    of both may decide it; None if only more items to score would. `gain` is what the reference has gained.
    """

    answer: Answer
    quality: float
    reference: float
    share: Figure
    gain: float
    runs_needed: int | None = None


def early_level(repeats: int) -> float:
    """Returns how sure each look at the runs has to be if there are looks at 3, 4, ... `repeats` of them.

    Settings that lose as much as may be lost then pass once in twenty: simulated, 3.5% to 5.1% of 40,000 for
    up to 12 runs (Pocock, 1977, has the same idea for a known variance).
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
) -> Kept | None:
    """Returns whether the runs `ours` keep a share of `keep` of what the runs `theirs` have gained.

    None if one of them has no run. Without a known noise nothing is decided. That it is kept is said at
    `level`, that it is lost at 95%.
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
    half, surely = (
        _half(len(a), len(b), noise, error, sure) / unit if noise else math.inf for sure in (LEVEL, level)
    )
    found = estimates.within(share, share - half, share + half)
    answer = (
        Answer.KEPT if share - surely >= keep else Answer.LOST if found.is_below(keep) else Answer.UNDECIDED
    )
    needed = runs_needed(ours, theirs, keep, noise, start) if noise and answer is Answer.UNDECIDED else None
    return Kept(answer, quality, reference, found, unit, needed)


def runs_needed(
    ours: Sequence[Trial],
    theirs: Sequence[Trial],
    keep: float,
    noise: Noise,
    start: float | None = None,
) -> int | None:
    """Returns how many runs of both would decide whether `ours` keep that share, if the qualities stay.

    None if no number would, because too few items were scored, or one side has no quality.
    """
    a, b = qualities(ours), qualities(theirs)
    if not a or not b or not (reference := statistics.fmean(b)):
        return None
    gap = abs(statistics.fmean(a) - curves.least(keep, reference, start))
    return _runs_needed(gap, noise, _item_error(ours, theirs))


def between(share: Figure, goal: Objective = _HIGHER_IS_BETTER, gain: float = 1.0) -> str:
    """Returns `97% to 103% of what it gains`, of a `share` of a `gain`, or that it is not known.

    If an absolute slack is asked for, `0.031 below it to 0.02 above it`.
    """
    if share.low is None or share.high is None:
        return "it is not known how far equal runs differ"
    if goal.within is None:
        return f"{share.low:.1%} to {share.high:.1%} of what it gains"
    return " to ".join(_apart((end - 1) * gain, goal) for end in (share.low, share.high))


def _apart(more: float, goal: Objective) -> str:
    """Returns how far a quality lies from another one that is better by so much `more`."""
    return f"{abs(more):.3g} {'above' if goal.turned(more) > 0 else 'below'} it"


def limit(name: str, keep: float | None, within: float | None, *, minimize: bool = False) -> str:
    """Returns `95% of what the baseline gains in bleu_4`, the least that is kept, for a score called `name`.

    Of an absolute slack `0.02 below the baseline's bleu_4`, and `any bleu_4` if nothing is kept.
    """
    if within is not None:
        return f"{within:g} {'above' if minimize else 'below'} the baseline's {name}"
    return f"{100 * keep:.3g}% of what the baseline gains in {name}" if keep else f"any {name}"


def keeps(goal: Objective) -> str:
    """Returns what a winner does: `keeps 95% of what ...`, or `is at most 0.02 above the ...`."""
    kept = limit(goal.quality, goal.keep, goal.within, minimize=goal.minimize is not None)
    verb = "has" if goal.takes_any_quality else "keeps" if goal.within is None else "is at most"
    return f"{verb} {kept}"


def shown(value: float | None, goal: Objective) -> float | None:
    """A quality in the user's own sign."""
    return None if value is None else goal.turned(value)


def shown_figure(figure: Figure | None, goal: Objective) -> Figure | None:
    """Returns the same with its interval, whose ends change places if the sign is turned."""
    if figure is None or not goal.minimize:
        return figure
    low, high = shown(figure.high, goal), shown(figure.low, goal)
    return Figure(goal.turned(figure.value), low, high)


def shown_curve(curve: Sequence[Evaluation], goal: Objective) -> tuple[Evaluation, ...]:
    """A curve whose qualities, and what chance reaches, are in the user's own sign."""
    if not goal.minimize:
        return tuple(curve)
    return tuple(
        replace(point, quality=goal.turned(point.quality), chance=shown(point.chance, goal))
        for point in curve
    )


def qualities(runs: Sequence[Trial]) -> list[float]:
    """The quality that each run ended with."""
    return [found for run in runs if (found := curves.ended_with(run.measurement)) is not None]


def noise(groups: Sequence[Sequence[Trial]]) -> Noise | None:
    """Returns the noise of `groups` of equal runs, from what they ended with; None if no two are equal."""
    finals = [qualities(runs) for runs in groups]
    degrees = sum(len(found) - 1 for found in finals if found)
    if not degrees:
        return None
    squares = (statistics.variance(found) * (len(found) - 1) for found in finals if len(found) > 1)
    return Noise(math.sqrt(math.fsum(squares) / degrees), degrees)


def half_width(runs: int, noise: Noise) -> float:
    """Returns half of the interval of a difference that so many runs of both sides would have."""
    return _half(runs, runs, _with(noise, runs), 0.0)


def _half(ours: int, theirs: int, noise: Noise, item_error: float, level: float = LEVEL) -> float:
    """Returns half of the interval of a difference, one-sided at `level` to either side."""
    times = student_t(2 * level - 1, noise.degrees)
    runs = times * noise.deviation * math.sqrt(1 / ours + 1 / theirs)
    return math.hypot(runs, NormalDist().inv_cdf(level) * item_error)


def _item_error(ours: Sequence[Trial], theirs: Sequence[Trial]) -> float:
    """Returns the standard error of the difference, from the items that both were scored on.

    It is the result of resampling the items in pairs (Koehn, 2004): of a mean, the bootstrap's standard error
    is known in closed form. 0 if the items are not reported.
    """
    a, b = _items(ours), _items(theirs)
    if len(a) != len(b) or len(a) < 2:
        return 0.0
    apart = [x - y for x, y in zip(a, b, strict=True)]
    return statistics.stdev(apart) / math.sqrt(len(apart))


def _items(runs: Sequence[Trial]) -> list[float]:
    """Returns the average score of every item over `runs`."""
    known = [run.measurement.items for run in runs if run.measurement.items]
    if not known or len({len(items) for items in known}) > 1:
        return []
    return [statistics.fmean(values) for values in zip(*known, strict=True)]


def _runs_needed(gap: float, noise: Noise, item_error: float) -> int | None:
    """Returns how many runs of each side bring the interval below `gap`."""
    fits = (n for n in range(2, _MOST_RUNS + 1) if _half(n, n, _with(noise, n), item_error) < gap)
    return next(fits, None)


def _with(noise: Noise, runs: int) -> Noise:
    return Noise(noise.deviation, max(noise.degrees, 2 * runs - 2))
