"""The gain of a configuration over the baseline: one figure for every place that shows it. Pure."""

import math
from collections.abc import Sequence

from autotune.core.trial import Trial
from autotune.judging import objective
from autotune.judging.claims import claim
from autotune.judging.estimates import Figure, within
from autotune.judging.history import History


def gain(trial: Trial, history: History) -> Figure | None:
    """How many times the baseline's throughput; with a target, how many times as soon there.

    That of a repeat is that of what it repeats; where a claim has been made, it is the claim's. None where it
    is not known, as of a race.
    """
    speed, target = history.factor(trial), history.space.objective.target
    if speed is None or target is None:
        return speed
    number = trial.repeat.of if trial.repeat else trial.number
    if not number:
        return Figure(1.0)
    found = claim(history.of(number), history) if history.beside.raced(trial) else None
    if found is not None and not math.isnan(found.factor):
        return within(found.factor, found.low or None, found.high)
    fewer = fewer_samples(trial, history)
    return Figure(speed.value * fewer) if fewer else None


def fewer_samples(trial: Trial, history: History) -> float | None:
    """How many times a trial's samples to the target the baseline needs; None if one was never there."""
    ours, theirs = (samples_to_target(t, history) for t in (trial, history.of(0)))
    return theirs / ours if ours and theirs else None


def samples_to_target(trial: Trial, history: History) -> float | None:
    """Samples until a trial's settings are at the target, over the runs that count; None without a target."""
    target, runs = history.space.objective.target, history.quality_runs(trial)
    return None if target is None else _samples(runs, target)


def _samples(runs: Sequence[Trial], target: float) -> float | None:
    """The geometric mean of the samples to the target, over the runs that were there."""
    logs = [math.log(found) for run in runs if (found := objective.samples_to(run, target))]
    return math.exp(math.fsum(logs) / len(logs)) if logs else None
