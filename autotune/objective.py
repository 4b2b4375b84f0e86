"""Which trials may win, and which one does. Pure functions of measurements."""

import math
from collections.abc import Iterable, Sequence

from autotune.space import Objective
from autotune.trial import Measurement, Trial


def baseline_of(trials: Sequence[Trial]) -> Trial | None:
    """Trial 0, once it has completed: every result is stated relative to it."""
    return next((t for t in trials if t.number == 0 and t.completed), None)


def failed_baseline(trials: Sequence[Trial]) -> Trial | None:
    """Trial 0 where it has ended without completing: nothing can be compared with it, ever."""
    return next((t for t in trials if t.number == 0 and t.outcome and not t.completed), None)


def memory_share(measurement: Measurement) -> float | None:
    """Peak memory as a share of what the trial was allowed, None where either is unknown."""
    if measurement.peak_memory_bytes is None or not measurement.memory_limit_bytes:
        return None
    return measurement.peak_memory_bytes / measurement.memory_limit_bytes


def why_not_eligible(
    trial: Trial, baseline: Trial, objective: Objective, memory_fraction: float
) -> str | None:
    """Why a completed trial cannot be recommended, None if it can. The baseline always can."""
    figures = (trial.samples_per_s, trial.quality, baseline.quality)
    if not all(figure is not None and math.isfinite(figure) for figure in figures):
        return "its throughput or quality could not be measured"
    if trial.number == baseline.number:
        return None
    if _half_width(trial) is None and _half_width(baseline) is not None:
        return "it took too few steps to tell its throughput"
    quality, least = trial.quality or 0.0, objective.keep * (baseline.quality or 0.0)
    if quality < least:
        return f"{objective.quality} {quality:.4f} is below {least:.4f}"
    share = memory_share(trial.measurement)
    if share is not None and share > memory_fraction:
        return f"it takes {share:.0%} of the memory, over {memory_fraction:.0%}"
    return None


def winner(trials: Sequence[Trial], objective: Objective, memory_fraction: float) -> Trial | None:
    """The fastest completed trial that keeps the quality; None before the baseline has completed.

    Fastest is whose interval has the highest lower end: of two trials that read the same, the surer one. It
    is the baseline itself when nothing faster keeps the quality.
    """
    baseline = baseline_of(trials)
    if baseline is None:
        return None
    eligible = [
        t for t in trials if t.completed and why_not_eligible(t, baseline, objective, memory_fraction) is None
    ]
    return max(eligible, key=_surely_per_s, default=None)


def _half_width(trial: Trial) -> float | None:
    throughput = trial.measurement.throughput
    return throughput.half_width_per_s if throughput else None


def _surely_per_s(trial: Trial) -> float:
    """The lower end of the throughput's interval."""
    return (trial.samples_per_s or 0.0) - (_half_width(trial) or 0.0)


def factor(trial: Trial, baseline: Trial) -> float | None:
    """How many times the baseline's throughput `trial` reached."""
    if not trial.samples_per_s or not baseline.samples_per_s:
        return None
    return trial.samples_per_s / baseline.samples_per_s


def factor_interval(trial: Trial, baseline: Trial) -> tuple[float, float] | None:
    """Between which factors the truth lies if both intervals hold; None where one is not known."""
    ours, theirs = trial.measurement.throughput, baseline.measurement.throughput
    if not ours or not theirs or ours.half_width_per_s is None or theirs.half_width_per_s is None:
        return None
    slowest, fastest = (theirs.samples_per_s + sign * theirs.half_width_per_s for sign in (-1, 1))
    low = max(0.0, ours.samples_per_s - ours.half_width_per_s) / fastest
    high = (ours.samples_per_s + ours.half_width_per_s) / slowest if slowest > 0 else math.inf
    return low, high


def pareto(trials: Iterable[Trial]) -> list[Trial]:
    """The completed trials that none other beats in one of throughput and quality and equals in the other.

    Fastest first.
    """
    measured = [t for t in trials if t.completed and t.samples_per_s is not None and t.quality is not None]
    front: list[Trial] = []
    for trial in sorted(measured, key=lambda t: (t.samples_per_s or 0, t.quality or 0), reverse=True):
        if not front or (trial.quality or 0) > (front[-1].quality or 0):
            front.append(trial)
    return front
