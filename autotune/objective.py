"""Which trials may win, and which one does. Pure functions of measurements.

A trial that repeats another is a measurement of that one, and never wins itself; nor does a step of the way.
"""

import math
from collections.abc import Iterable, Sequence

from autotune import curves
from autotune.sections import Objective
from autotune.speeds import Speeds
from autotune.trial import Evaluation, Measurement, Trial


def baseline_of(trials: Sequence[Trial]) -> Trial | None:
    """Trial 0, once it has completed: every result is stated relative to it."""
    return next((t for t in trials if t.number == 0 and t.completed), None)


def failed_baseline(trials: Sequence[Trial]) -> Trial | None:
    """Trial 0 where it has ended without completing: nothing can be compared with it, ever."""
    return next((t for t in trials if t.number == 0 and t.outcome and not t.completed), None)


def runs_of(trials: Iterable[Trial], number: int) -> list[Trial]:
    """Trial `number` and its repeats, as far as they have completed."""
    return [t for t in trials if t.completed and number in {t.number, t.repeat.of if t.repeat else None}]


def baseline_curve(trials: Iterable[Trial]) -> tuple[Evaluation, ...]:
    """The baseline's quality by samples, the mean of all its runs."""
    return curves.mean_curve([t.measurement.curve for t in runs_of(trials, 0)])


def noise(trials: Iterable[Trial]) -> float | None:
    """How far the quality of equal runs lies apart, as the baseline's own repeats show; None without any."""
    return curves.relative_noise([t.measurement.curve for t in runs_of(trials, 0)])


def baseline_quality(trials: Iterable[Trial]) -> float | None:
    """The baseline's quality in the end, the mean of all its runs."""
    return mean([t.quality for t in runs_of(trials, 0) if t.quality is not None])


def mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def memory_share(measurement: Measurement) -> float | None:
    """Peak memory as a share of what the trial was allowed, None where either is unknown."""
    if measurement.peak_memory_bytes is None or not measurement.memory_limit_bytes:
        return None
    return measurement.peak_memory_bytes / measurement.memory_limit_bytes


def over_memory(measurement: Measurement, memory_fraction: float) -> str | None:
    """Why a trial takes too much memory to be recommended, None if it does not."""
    share = memory_share(measurement)
    if share is None or share <= memory_fraction:
        return None
    return f"it takes {share:.0%} of the memory, over {memory_fraction:.0%}"


def seconds_to(trial: Trial, target: float | None) -> float | None:
    """Seconds of training, evaluation excluded, until `trial` was first seen at `target`; None if never."""
    if target is None:
        return None
    return next((p.seconds for p in trial.measurement.curve if p.quality >= target), None)


def ranked(trials: Sequence[Trial], objective: Objective, memory_fraction: float) -> list[Trial]:
    """The trials that may be recommended, best first; empty before the baseline has completed.

    Best is whose interval of throughput has the highest lower end - of two that read the same, the surer
    one - and of equal ones that with the higher quality; or who was quickest at the target.
    """
    baseline, quality, speeds = baseline_of(trials), baseline_quality(trials), Speeds(trials)
    if baseline is None:
        return []
    eligible = [
        t
        for t in trials
        if t.completed
        and t.searched
        and why_not_eligible(t, baseline, quality, objective, memory_fraction) is None
    ]
    return sorted(eligible, key=lambda t: _rank(t, speeds, objective), reverse=True)


def why_not_eligible(
    trial: Trial, baseline: Trial, quality: float | None, objective: Objective, memory_fraction: float
) -> str | None:
    """Why a completed trial cannot be recommended, None if it can. The baseline always can.

    `quality` is the baseline's, over all its runs.
    """
    figures = (trial.samples_per_s, trial.quality, quality)
    if not all(figure is not None and math.isfinite(figure) for figure in figures):
        return "its throughput or quality could not be measured"
    if trial.number == baseline.number:
        return None
    if trial.measurement.origin != baseline.measurement.origin:
        return "it was measured on another device, or with other code, than the baseline"
    if too_much := over_memory(trial.measurement, memory_fraction):
        return too_much
    if objective.target is not None:
        reached = seconds_to(trial, objective.target)
        return None if reached else f"it has not reached {objective.quality} {objective.target:g}"
    if _half_width(trial) is None and _half_width(baseline) is not None:
        return "it took too few steps to tell its throughput"
    found, least = trial.quality or 0.0, curves.least(objective.keep, quality or 0.0)
    return f"{objective.quality} {found:.4f} is below {least:.4f}" if found < least else None


def winner(trials: Sequence[Trial], objective: Objective, memory_fraction: float) -> Trial | None:
    """The best of `ranked`: the baseline itself when nothing better keeps the quality."""
    return next(iter(ranked(trials, objective, memory_fraction)), None)


def _rank(trial: Trial, speeds: Speeds, objective: Objective) -> tuple[float, float]:
    if objective.target is not None:
        reached = seconds_to(trial, objective.target)
        return (1 / reached if reached else 0.0, surely_per_s(trial, speeds))
    return (surely_per_s(trial, speeds), trial.quality or 0.0)


def surely_per_s(trial: Trial, speeds: Speeds) -> float:
    """The lower end of a trial's throughput, its equals counted in."""
    throughput = speeds.of(trial)
    return throughput.samples_per_s - (throughput.half_width_per_s or 0.0) if throughput else 0.0


def _half_width(trial: Trial) -> float | None:
    throughput = trial.measurement.throughput
    return throughput.half_width_per_s if throughput else None


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
    known = list(trials)
    baseline = baseline_of(known)
    measured = [
        t
        for t in known
        if t.completed and t.searched and t.samples_per_s is not None and t.quality is not None
        if baseline is None or t.measurement.origin == baseline.measurement.origin
    ]
    front: list[Trial] = []
    for trial in sorted(measured, key=lambda t: (t.samples_per_s or 0, t.quality or 0), reverse=True):
        if not front or (trial.quality or 0) > (front[-1].quality or 0):
            front.append(trial)
    return front
