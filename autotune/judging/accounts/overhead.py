"""Estimates a training's time outside of its steps: evaluations, checkpoints and logging. Pure.

A trial is evaluated as often as the tuner needs, not as often as the training. So the time of one evaluation
is measured in trials, and multiplied by the training's own number of evaluations.
"""

import math
from dataclasses import dataclass

from autotune.core.trial import Trial
from autotune.judging.decisions import objective
from autotune.judging.decisions.history import History
from autotune.judging.measurement import estimates
from autotune.judging.measurement.estimates import Figure, within
from autotune.space.space import Space

_FROM_RUN_TO_RUN = 0.05  # of an evaluation's time: variation that does not show within a run


@dataclass(frozen=True)
class InRace:
    """The time of evaluations that is added to the speed in a race, which has none."""

    outside_s: float = 0.0  # per sample
    unsure: float = 0.0  # share of the speed by which that may be wrong


def in_race(trial: Trial, space: Space) -> InRace:
    """Returns the time to add for the settings of `trial`: none if evaluations are no part of the speed."""
    seen, speed = trial.measurement.outside, trial.samples_per_s
    if not space.objective.counts_evaluations or seen.evaluation_s is None or speed is None:
        return InRace()
    every = _every(trial, space)
    if every is None:
        return InRace()
    half = seen.evaluation_s if seen.half_width_s is None else seen.half_width_s
    wrong_s = max(half, _FROM_RUN_TO_RUN * seen.evaluation_s)
    return InRace(seen.evaluation_s / every, wrong_s / every * speed)


def _every(trial: Trial, space: Space) -> float | None:
    """Returns the samples between two evaluations of the whole training; None if they are not known.

    If evaluations are part of the speed, the trial's own interval is used then.
    """
    known = space.samples_per_evaluation(trial.config)
    if known is not None or not space.objective.counts_evaluations:
        return known
    return trial.measurement.quality_samples / max(1, len(trial.measurement.curve)) or None


@dataclass(frozen=True)
class TimeShares:
    """The estimated parts of the time of the whole training with a trial's settings."""

    evaluations: float | None  # share of the time; None if it is not known
    pauses: float  # share of the time
    step_s: float  # per sample, without evaluations
    sample_s: float  # per sample, with evaluations
    half_s: float | None = None  # half the 95% interval of `step_s`; None if it is not known
    evaluation_half_s: float = 0.0  # half the 95% interval of the time that evaluations add

    def whole_s(self, samples: int, *, is_counted: bool) -> Figure:
        """Returns the seconds of a training of `samples`, with its evaluations if they are counted."""
        value = samples * (self.sample_s if is_counted else self.step_s)
        if self.half_s is None:
            return Figure(value)
        half = samples * math.hypot(self.half_s, self.evaluation_half_s if is_counted else 0.0)
        return within(value, max(0.0, value - half), value + half)


def time_spent(trial: Trial, history: History) -> TimeShares | None:
    """Returns the parts of the time with the settings of `trial`; None without a throughput."""
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


def _evaluation_s(trial: Trial, history: History) -> Figure | None:
    """Returns the seconds of evaluation per sample of the whole training, the mean of all runs.

    The interval is from the scatter between runs, or within a single run, but at least the usual variation.
    """
    every = _every(trial, history.space)
    seen = [run.measurement.outside for run in history.runs_of(trial.number)]
    found = estimates.mean([one.evaluation_s for one in seen if one.evaluation_s is not None])
    if every is None or found is None:
        return None
    own = next(one for one in seen if one.evaluation_s is not None).half_width_s
    half = found.part * found.value if found.part is not None else found.value if own is None else own
    half = max(half, _FROM_RUN_TO_RUN * found.value)
    return Figure(found.value, found.value - half, found.value + half).scaled(1 / every)
