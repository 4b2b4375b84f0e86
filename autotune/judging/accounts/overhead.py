"""Estimates a training's time outside its steps: evaluations, checkpoints and logging. Pure.

A trial is evaluated as often as the tuner needs, not as often as the training. So the time of an evaluation
is measured in trials and multiplied by the training's number of evaluations.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.core.trial import Trial
from autotune.judging.decisions import objective
from autotune.judging.decisions.history import History
from autotune.judging.measurement import estimates
from autotune.judging.measurement.estimates import Figure
from autotune.space.space import Space

_FROM_RUN_TO_RUN = 0.05  # of an evaluation's time: variation between runs, which a single one cannot show


def in_race(trial: Trial, space: Space) -> tuple[float, float]:
    """Returns the seconds per sample that evaluations add to a race, and the relative error of its speed."""
    outside, speed, every = trial.measurement.outside, trial.samples_per_s, _evaluation_interval(trial, space)
    each_s = outside.evaluation_s
    if not space.objective.counts_evaluations or each_s is None or speed is None or every is None:
        return 0.0, 0.0
    half_s = each_s if outside.half_width_s is None else outside.half_width_s
    return each_s / every, max(half_s, _FROM_RUN_TO_RUN * each_s) / every * speed


def _evaluation_interval(trial: Trial, space: Space) -> float | None:
    """Returns the samples between two evaluations of the whole training; None if unknown."""
    every = space.samples_per_evaluation(trial.config)
    if every is not None or not space.objective.counts_evaluations:
        return every
    # An unknown interval is assumed to be the same as in the trial.
    return trial.measurement.quality_samples / max(1, len(trial.measurement.curve)) or None


@dataclass(frozen=True)
class TimeShares:
    """The estimated breakdown of a whole training's time, with a trial's settings."""

    evaluations: float | None  # share of the time; None if unknown
    pauses: float  # share of the time
    step_s: float  # per sample, without evaluations
    sample_s: float  # per sample, with evaluations
    half_s: float | None = None  # half the 95% interval of `step_s`; None if unknown
    evaluation_half_s: float = 0.0  # half the 95% interval of the time that evaluations add

    def whole_s(self, samples: int, *, is_counted: bool) -> Figure:
        """Returns the seconds of a training of `samples`, with its evaluations if they are counted."""
        each_s, more_s = (self.sample_s, self.evaluation_half_s) if is_counted else (self.step_s, 0.0)
        half = None if self.half_s is None else samples * math.hypot(self.half_s, more_s)
        return estimates.around(samples * each_s, half, 0.0)


def time_spent(trial: Trial, history: History) -> TimeShares | None:
    """Returns the breakdown of the time with the settings of `trial`; None without a throughput."""
    speed, space = history.throughput(trial), history.space
    if speed is None or speed.value <= 0:
        return None
    measured_s, more = 1 / speed.value, _evaluation_s(trial, history)
    more_s, counted = more.value if more else 0.0, space.objective.counts_evaluations
    step_s = max(0.0, measured_s - more_s) if counted else measured_s
    sample_s = measured_s if counted else measured_s + more_s
    pauses = objective.mean([run.measurement.outside.pauses for run in history.runs_of(trial.number)])
    return TimeShares(
        min(1.0, more_s / sample_s) if more else None,
        (pauses or 0.0) * step_s / sample_s,
        step_s,
        sample_s,
        None if speed.part is None else speed.part * measured_s,
        0.0 if counted or more is None else (more.part or 0.0) * more_s,
    )


def trainings_s(history: History, *trials: Trial) -> tuple[list[float], bool]:
    """Returns the seconds of whole trainings, [] if one is unknown, and whether they include evaluations."""
    spent = [time_spent(trial, history) for trial in trials]
    are_counted = counts_evaluations(spent, history.space)
    whole = history.space.training.samples or history.whole
    times = [
        shares.whole_s(round(whole / history.length_ratio(trial)), is_counted=are_counted).value
        for trial, shares in zip(trials, spent, strict=True)
        if shares
    ]
    return (times, are_counted) if len(times) == len(trials) else ([], False)


def counts_evaluations(spent: Sequence[TimeShares | None], space: Space) -> bool:
    """Returns True if the times of trainings with these breakdowns include evaluations; all must be known."""
    return space.objective.counts_evaluations or all(s and s.evaluations is not None for s in spent)


def _evaluation_s(trial: Trial, history: History) -> Figure | None:
    """Returns the seconds of evaluation per sample of the whole training, the mean over all runs."""
    every = _evaluation_interval(trial, history.space)
    runs = [run.measurement.outside for run in history.runs_of(trial.number)]
    timed = [run for run in runs if run.evaluation_s is not None]
    mean_s = estimates.mean([run.evaluation_s or 0.0 for run in timed])
    if every is None or mean_s is None:
        return None
    if mean_s.part is not None:
        half = mean_s.part * mean_s.value
    else:  # a single run: from its evaluations
        half = mean_s.value if timed[0].half_width_s is None else timed[0].half_width_s
    return estimates.around(mean_s.value, max(half, _FROM_RUN_TO_RUN * mean_s.value)).scaled(1 / every)
