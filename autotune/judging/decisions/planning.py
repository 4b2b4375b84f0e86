"""Predicts the length that a training needs to end with the baseline's quality, or to reach a target. Pure.

A longer training ends better. The gain per factor e of length, the exchange rate, is about the same for all
settings of a training (measured on a small GPT: docs/benchmarks.md). With it, a single training shows how
long its settings need for the baseline's quality, even if it missed that.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property

from autotune.core.settings import LENGTH, Key
from autotune.core.trial import Trial, TrialKind
from autotune.judging.decisions import objective
from autotune.judging.measurement import curves
from autotune.judging.measurement.speeds import Speeds
from autotune.space.space import Space

WITHOUT_LENGTH = frozenset({LENGTH})
_SHORTEST, _LONGEST = 1 / 4, 64.0  # times a training's length: nothing is predicted beyond
# Relative SD of the samples to a target between seeds: 0.06 to 0.22 in the tables of docs/benchmarks.md.
_PRIOR_SCATTER, _PRIOR_DEGREES = 0.15, 4
_NEAR = 0.3  # of log lengths: trainings that are averaged, because seeds vary
_LEAST_SQUARES = math.log(1.3) ** 2  # of log lengths: with less spread there is no rate


def is_wanted(space: Space) -> bool:
    """Returns True if trainings of different lengths are compared."""
    goal = space.objective
    plain = goal.select == "same-quality" and goal.target is None and not goal.takes_any_quality
    return LENGTH in space.knobs and plain


class LengthNeeds:
    """The samples that settings need to end with `quality` (higher is better), from all their trainings.

    `slack` is the quality that may be lost. Doubling the length is assumed to gain at least that much, which
    keeps the predicted lengths finite.
    """

    def __init__(self, trials: Iterable[Trial], space: Space, quality: float | None, slack: float) -> None:
        self._quality, self._slack = quality, slack
        self._groups: dict[tuple[Key, str], list[tuple[float, float]]] = defaultdict(list)
        for trial in trials if is_wanted(space) else ():
            final = curves.end_quality(trial.measurement)
            if trial.completed and trial.kind not in (TrialKind.RACE, TrialKind.STEP) and final is not None:
                length = math.log(space.samples(trial.config))
                self._groups[_settings(trial)].append((length, final))

    @cached_property
    def rate(self) -> float | None:
        """The quality gained per factor e of length; None until lengths differ enough."""
        # The common slope of lines through the trainings of equal settings, by least squares.
        squares = products = 0.0
        for points in self._groups.values():
            length, quality = (statistics.fmean(values) for values in zip(*points, strict=True))
            squares += math.fsum((x - length) ** 2 for x, _ in points)
            products += math.fsum((x - length) * (y - quality) for x, y in points)
        if squares < _LEAST_SQUARES:
            return None
        return max(products / squares, self._slack / math.log(2))

    def samples(self, trial: Trial) -> float | None:
        """Returns the samples that a trial's settings need; None if no training of them has completed."""
        points, target = self._groups.get(_settings(trial), ()), self._quality
        if not points or target is None:
            return None
        by_length: dict[float, list[float]] = defaultdict(list)
        for length, quality in points:
            by_length[length].append(quality)
        closest = min(by_length, key=lambda length: abs(statistics.fmean(by_length[length]) - target))
        # Trainings near the length whose quality came closest to the wanted one; without a rate, that length.
        near = [point for point in points if abs(point[0] - closest) <= _NEAR]
        length, quality = (statistics.fmean(values) for values in zip(*near, strict=True))
        return self.extrapolated(math.exp(length), quality) or math.exp(closest)

    def extrapolated(self, samples: float, quality: float) -> float | None:
        """Returns the samples that settings with `quality` after `samples` need; None without a rate."""
        if not self.rate or self._quality is None:
            return None
        times = math.exp(min((self._quality - quality) / self.rate, math.log(_LONGEST)))
        return samples * max(_SHORTEST, times)


def _settings(trial: Trial) -> tuple[Key, str]:
    """Returns a key of a trial's code and of its settings without length and seed."""
    return trial.key_without(WITHOUT_LENGTH), trial.measurement.revision


class ToTarget:
    """Samples and seconds of trials to the target; None if a trial did not reach it, or no target is set."""

    def __init__(self, trials: Iterable[Trial], speeds: Speeds, space: Space) -> None:
        self._trials, self._speeds, self._space = tuple(trials), speeds, space
        self._target = space.objective.aim

    def samples(self, trial: Trial) -> float | None:
        """Returns the samples that `trial` took to the target: the mean over runs that compute the same."""
        return objective.mean(self.runs(trial))

    def seconds(self, trial: Trial) -> float | None:
        """Returns the time to the target, at the pooled throughput of the settings."""
        samples, throughput = self.samples(trial), self._speeds.pooled_throughput(trial)
        return samples / throughput.samples_per_s if samples and throughput else None

    @cached_property
    def scatter(self) -> float:
        """The relative SD of the samples between equal runs, estimated with a weak prior."""
        logs = [[math.log(samples) for samples in runs] for runs in self._groups.values()]
        squares = math.fsum((x - statistics.fmean(each)) ** 2 for each in logs for x in each)
        degrees = sum(len(each) - 1 for each in logs)
        return math.sqrt((_PRIOR_DEGREES * _PRIOR_SCATTER**2 + squares) / (_PRIOR_DEGREES + degrees))

    def runs(self, trial: Trial) -> list[float]:
        """Returns the samples of each run that computes the same as `trial`; none if `trial` missed it."""
        if self._target is None or objective.samples_to(trial, self._target) is None:
            return []
        return self._groups[self.computation(trial)]

    @cached_property
    def _groups(self) -> dict[tuple[Key, str], list[float]]:
        """The samples of each run to the target; for a run that missed it, its length as a lower bound."""
        groups: dict[tuple[Key, str], list[float]] = defaultdict(list)
        for trial in self._trials:
            if self._target is not None and trial.completed and trial.measurement.curve:
                samples = objective.samples_to(trial, self._target) or trial.measurement.curve[-1].samples
                groups[self.computation(trial)].append(samples)
        return groups

    def computation(self, trial: Trial) -> tuple[Key, str]:
        """Returns a key of a trial's code and of its settings that change the result."""
        return trial.key_without(self._space.known.same_quality), trial.measurement.origin[1]
