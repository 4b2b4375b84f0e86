"""Judges a changed training by whole trainings in pairs: is it faster, and as good? Pure."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.core.measurement import Evaluation, Measurement
from autotune.core.trial import Outcome, Status, Trial
from autotune.judging.decisions import objective, quality
from autotune.judging.decisions.quality import KeptQuality, QualityAnswer
from autotune.judging.measurement import curves, estimates
from autotune.judging.measurement.estimates import Figure
from autotune.space.sections import Objective

FEWEST = 3  # pairs, for a verdict
_WORTH = 1.02  # a factor below this is no gain


@dataclass(frozen=True)
class TrainingRun:
    """A whole training: how long it took, and the scores that it reported, in order."""

    seconds: float
    scores: tuple[float, ...]  # in the user's sign

    @property
    def final(self) -> float:
        """The mean of the last quarter of the scores, at least of one."""
        return curves.final(self.scores)


@dataclass(frozen=True)
class PairedVerdict:
    """The result of the pairs so far; `confirmed` is None while more of them may decide."""

    confirmed: bool | None
    why_not: str = ""  # empty if it is confirmed
    factor: Figure | None = None  # the change takes 1/`factor` of the time
    kept: KeptQuality | None = None

    @property
    def is_as_good(self) -> bool:
        """True if it is confirmed that the quality is kept, which may not have been asked for."""
        return bool(self.confirmed and self.kept and self.kept.answer is QualityAnswer.KEPT)


def judge(
    before: Sequence[TrainingRun], after: Sequence[TrainingRun], goal: Objective, most: int
) -> PairedVerdict:
    """Judges the change by pairs of trainings, each pair with its own seed; at most `most` pairs will run.

    The interval of the factor is Student's, of the pairs' log-ratios. Every look at the pairs may err, so
    each has a stricter level, such that all looks together have 95% (`quality.early_level`).
    """
    for side, whose in ((after, "its"), (before, "A's")):
        if any(not math.isfinite(run.final) for run in side):
            return PairedVerdict(False, f"{whose} {goal.quality} is not a number")
    if min(len(before), len(after)) < FEWEST:
        return PairedVerdict(None, f"{FEWEST} pairs are needed")
    level = quality.early_level(most)
    logs = [math.log(a.seconds / b.seconds) for a, b in zip(before, after, strict=False)]
    middle, half = statistics.fmean(logs), estimates.half_interval(logs, level)
    factor = Figure(math.exp(middle), math.exp(middle - half), math.exp(min(700.0, middle + half)))
    ours, theirs = _trials(after, goal), _trials(before, goal)
    start = objective.start(theirs[0])
    reference = statistics.fmean(quality.qualities(theirs))
    keep = objective.least_share(goal, reference, start)
    noise = quality.noise([ours, theirs])
    kept = None
    if not goal.takes_any_quality:
        kept = quality.compare(ours, theirs, keep, noise, start=start, level=level)
    is_same = goal.takes_any_quality or (kept is not None and kept.answer is QualityAnswer.KEPT)
    if factor.is_below(_WORTH):
        return PairedVerdict(False, "it is not faster", factor, kept)
    if kept is not None and kept.answer is QualityAnswer.LOST:
        return PairedVerdict(False, f"its {goal.quality} is worse", factor, kept)
    if factor.is_above(1) and is_same:
        return PairedVerdict(True, "", factor, kept)
    open_ = [] if factor.is_above(1) else ["whether it is faster"]
    if not is_same:
        open_.append(f"whether its {goal.quality} is as good")
    return PairedVerdict(None, f"{' and '.join(open_)} is not decided", factor, kept)


def _trials(runs: Sequence[TrainingRun], goal: Objective) -> list[Trial]:
    trials = []
    for number, run in enumerate(runs):
        curve = tuple(Evaluation(n, 0.0, goal.turned(score)) for n, score in enumerate(run.scores, 1))
        measured = Measurement(quality=curve[-1].quality, curve=curve)
        trials.append(Trial(number, {}, Outcome(Status.COMPLETED), measured, run.seconds))
    return trials
