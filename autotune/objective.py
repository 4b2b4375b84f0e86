"""Which trials may win, and which one does. Pure functions of measurements.

A trial that repeats another is a measurement of that one, and never wins itself; nor does an ablation step.
"""

import math
from collections.abc import Iterable, Sequence

from autotune import curves
from autotune.sections import Objective, comparison
from autotune.settings import COMMON, Config, Knowledge, Setting, effective_batch
from autotune.speeds import Speeds
from autotune.trial import Evaluation, Measurement, Trial

_ROUNDING = 1e-3  # of a learning rate, which has four digits


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
    return mean([q for t in runs_of(trials, 0) if (q := curves.ended_with(t.measurement)) is not None])


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


def samples_to(trial: Trial, target: float) -> float | None:
    """Training samples until `trial` was at the quality `target`; None where it never was."""
    return curves.reached(trial.measurement.curve, target)


def seconds_to(trial: Trial, target: float, speeds: Speeds | None = None) -> float | None:
    """Seconds of training, evaluation excluded, until `trial` was at the quality `target`; None if never.

    At the throughput that is known of its settings, where `speeds` are given, else at its own.
    """
    samples = samples_to(trial, target)
    throughput = speeds.of(trial) if speeds else trial.measurement.throughput
    return samples / throughput.samples_per_s if samples and throughput else None


def no_quality(measurement: Measurement) -> str | None:
    """Why what a trial ended with is no quality at all, None where it is one."""
    last = measurement.curve[-1] if measurement.curve else None
    if last is None:
        return None
    if last.collapsed:
        return "it does the same whatever it sees"
    if last.chance is not None and last.quality <= last.chance:
        return f"its quality {last.quality:.4f} is not above chance, {last.chance:.4f}"
    return None


def broken_constraint(measurement: Measurement, goal: Objective) -> str | None:
    """Which of the user's own constraints a trial breaks, None where it keeps them all."""
    for name, text in goal.constraints.items():
        sign, bound = comparison(text) or ("", 0.0)
        found = measurement.scores.get(name)
        if found is None:
            return f"no evaluation has {name}, which must be {text}"
        if (found < bound) if sign == ">=" else (found > bound):
            return f"{name} is {found:g}, and must be {text}"
    return None


def ranked(
    trials: Sequence[Trial], objective: Objective, memory_fraction: float, known: Knowledge = COMMON
) -> list[Trial]:
    """The trials that may be recommended, best first; empty before the baseline has completed.

    Best is whose interval of throughput has the highest lower end - of two that read the same, the surer
    one - and of equal ones that with the higher quality; or who was quickest at the target.
    """
    baseline, quality, speeds = baseline_of(trials), baseline_quality(trials), Speeds(trials, known)
    if baseline is None:
        return []
    eligible = [
        t
        for t in trials
        if t.completed
        and t.searched
        and why_not_eligible(t, baseline, quality, objective, memory_fraction, known=known) is None
    ]
    return sorted(eligible, key=lambda t: _rank(t, speeds, objective), reverse=True)


def why_not_eligible(
    trial: Trial,
    baseline: Trial,
    quality: float | None,
    objective: Objective,
    memory_fraction: float,
    *,
    known: Knowledge = COMMON,
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
    if objective.select == "same-training" and not trains_alike(trial.config, baseline.config, known):
        return "it trains something else than the baseline"
    if too_much := over_memory(trial.measurement, memory_fraction):
        return too_much
    if broken := broken_constraint(trial.measurement, objective):
        return broken
    if objective.target is not None:
        reached = samples_to(trial, objective.target)
        return None if reached else f"it has not reached {objective.quality} {objective.target:g}"
    if _half_width(trial) is None and _half_width(baseline) is not None:
        return "it took too few steps to tell its throughput"
    return None if objective.select == "same-training" else _lost(trial, quality or 0.0, objective)


def trains_alike(config: Config, other: Config, known: Knowledge = COMMON) -> bool:
    """Whether two configurations are the same training: all is equal that a training's result depends on.

    Of the batch that is the effective one, and numbers are equal to the digits that are kept of a rate.
    """
    names = (config.keys() | other.keys()) - known.same_training
    return effective_batch(config) == effective_batch(other) and all(
        _is_equal(config.get(n), other.get(n)) for n in names
    )


def _is_equal(value: Setting, other: Setting) -> bool:
    if isinstance(value, float) and isinstance(other, float):
        return math.isclose(value, other, rel_tol=_ROUNDING)
    return repr(value) == repr(other)


def _lost(trial: Trial, quality: float, objective: Objective) -> str | None:
    """How far a trial's quality is from what is to be kept of `quality`, None where it is not."""
    if not objective.keep:
        return None
    if none := no_quality(trial.measurement):
        return none
    found, least = curves.ended_with(trial.measurement) or 0.0, curves.least(objective.keep, quality)
    return f"{objective.quality} {found:.4f} is below {least:.4f}" if found < least else None


def winner(
    trials: Sequence[Trial], objective: Objective, memory_fraction: float, known: Knowledge = COMMON
) -> Trial | None:
    """The best of `ranked`: the baseline itself when nothing better keeps the quality."""
    return next(iter(ranked(trials, objective, memory_fraction, known)), None)


def _rank(trial: Trial, speeds: Speeds, objective: Objective) -> tuple[float, float]:
    if objective.target is not None:
        seconds = seconds_to(trial, objective.target, speeds)
        return (1 / seconds if seconds else 0.0, surely_per_s(trial, speeds))
    return (surely_per_s(trial, speeds), trial.quality or 0.0)


def surely_per_s(trial: Trial, speeds: Speeds) -> float:
    """The lower end of a trial's throughput, its equals counted in."""
    throughput = speeds.of(trial)
    return throughput.samples_per_s - (throughput.half_width_per_s or 0.0) if throughput else 0.0


def _half_width(trial: Trial) -> float | None:
    throughput = trial.measurement.throughput
    return throughput.half_width_per_s if throughput else None


def factor(trial: Trial, baseline: Trial, target: float | None = None) -> float | None:
    """How many times the baseline's throughput `trial` reached; with a `target`, how much sooner."""
    if target is not None:
        ours, theirs = seconds_to(trial, target), seconds_to(baseline, target)
        return theirs / ours if ours and theirs else None
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
