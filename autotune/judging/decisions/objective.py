"""Rules for single trials: memory, target, the user's constraints, equality of trainings. Pure."""

import math
from collections.abc import Sequence
from enum import StrEnum

from autotune.core.measurement import Measurement
from autotune.core.settings import COMMON, Config, Knowledge, effective_batch
from autotune.core.trial import Trial, TrialKind
from autotune.judging.measurement import curves
from autotune.space.sections import Objective, comparison
from autotune.space.space import Space

_HIGHER_IS_BETTER = Objective()
_ROUNDING = 1e-3  # relative: learning rates have four digits


class Reason(StrEnum):
    """The reason that trials have not won, phrased to follow their count."""

    # Completed, but rejected:
    UNMEASURED = "ended too early to be measured"
    UNSURE = "took too few steps to be measured"
    ELSEWHERE = "ran on another device or with other code"
    ANOTHER = "would have changed the training itself"
    MEMORY = "took more memory than is allowed"
    BROKEN = "broke a constraint"
    CHANCE = "reached a quality no better than chance"
    MISSED = "did not reach the target"
    QUALITY = "ran faster but lost quality"
    SLOW_AND_POOR = "ran no faster and lost quality"
    # Eligible, but not better:
    KEPT = "kept the quality but ran no faster"
    SLOWER = "ran no faster"
    CLOSE = "ran faster by too little to be sure"
    REACHED = "reached the target no earlier"
    # Not completed:
    STOPPED = "stopped early because another trial is faster"
    LATE = "stopped early because another trial reached the target earlier"
    OOM = "ran out of memory"
    DIVERGED = "diverged"
    SILENT = "stopped responding"
    FAILED = "failed"
    OPEN = "did not finish"
    # After confirmation:
    REFUTED = "looked better, but not when measured again"
    UNDECIDED = "looked better, but more seeds did not settle the quality"
    UNCONFIRMED = "looked better, but not yet measured again"


def mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def memory_share(measurement: Measurement) -> float | None:
    """Returns the peak memory as a share of the trial's limit; None if either is unknown."""
    if measurement.peak_memory_bytes is None or not measurement.memory_limit_bytes:
        return None
    return measurement.peak_memory_bytes / measurement.memory_limit_bytes


def over_memory(measurement: Measurement, memory_fraction: float) -> str | None:
    """Returns the reason if a trial takes too much memory to be recommended, else None."""
    share = memory_share(measurement)
    if share is None or share <= memory_fraction:
        return None
    return f"it used {share:.0%} of the memory limit, more than the allowed {memory_fraction:.0%}"


def least(goal: Objective, reference: float, start: float | None = None) -> float:
    """Returns the lowest quality that a winner may have, if the baseline has `reference`; higher is better.

    `start` is the quality that the baseline began with, None if unknown. No other code decides this.
    """
    if goal.within is not None:
        return reference - goal.within
    return curves.least(goal.keep or 0.0, reference, start)


def least_share(goal: Objective, reference: float, start: float | None = None) -> float:
    """Returns `least` as a share of the baseline's gain (`curves.share`); 0 if the baseline did not gain."""
    if goal.within is None:
        return goal.keep or 0.0
    has_gained = curves.gain(reference, start) > 0
    return curves.share(least(goal, reference, start), reference, start) if has_gained else 0.0


def start(trial: Trial) -> float | None:
    """Returns the quality that a training began with: before its first step, or else that of chance.

    If neither is known, the first evaluation of a loss (negative here); None for a score, counted as 0.
    """
    curve, before = trial.measurement.curve, trial.measurement.start
    quality = before if before is not None else next((p.chance for p in curve if p.chance is not None), None)
    if quality is None and len(curve) > 1 and curve[0].quality < 0:
        return curve[0].quality
    return quality


def samples_to(trial: Trial, target: float) -> float | None:
    """Returns the samples until `trial` reached the quality `target`; None if it never did."""
    return curves.samples_to_reach(trial.measurement.curve, target)


def no_quality(measurement: Measurement, goal: Objective = _HIGHER_IS_BETTER) -> str | None:
    """Returns the reason if a trial's final quality is no better than chance, else None."""
    last = measurement.curve[-1] if measurement.curve else None
    if last is None:
        return None
    if last.collapsed:
        return "it gives the same answer to every input"
    if last.chance is not None and last.quality <= last.chance:
        value, chance = goal.turned(last.quality), goal.turned(last.chance)
        return f"its quality {value:.4f} is not {'below' if goal.minimize else 'above'} chance ({chance:.4f})"
    return None


def broken_constraint(measurement: Measurement, goal: Objective) -> str | None:
    """Returns the first of the user's constraints that a trial breaks, None if it breaks none."""
    for name, text in goal.constraints.items():
        sign, bound = comparison(text) or ("", 0.0)
        score = measurement.scores.get(name)
        if score is None:
            return f"no evaluation has {name}, which must be {text}"
        if (score < bound) if sign == ">=" else (score > bound):
            return f"{name} is {score:g}, and must be {text}"
    return None


def final_quality(trial: Trial, space: Space) -> float | None:
    """Returns the quality at a trial's end; None if it ended early because only its speed counted."""
    is_whole = trial.measurement.quality_samples >= space.samples(trial.config)
    return trial.quality if is_whole or not space.objective.asks_for_speed_alone else None


def ends_once_timed(trial: Trial, goal: Objective) -> bool:
    """Returns True if `trial` may end as soon as its speed is known, because nothing else counts."""
    counts = trial.number == 0 and goal.select == "same-training"  # compared with the winner in the end
    return trial.kind is TrialKind.SEARCHED and goal.asks_for_speed_alone and not counts


def trains_alike(config: Config, other: Config, known: Knowledge = COMMON) -> bool:
    """Returns True if two configurations train the same: all settings that change the result are equal."""
    names = (config.keys() | other.keys()) - known.same_training
    for a, b in ((config.get(name), other.get(name)) for name in names):
        are_close = isinstance(a, float) and isinstance(b, float) and math.isclose(a, b, rel_tol=_ROUNDING)
        if not are_close and repr(a) != repr(b):
            return False
    return effective_batch(config) == effective_batch(other)
