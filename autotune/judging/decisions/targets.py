"""When settings were at the target of a search, of all runs that compute the same. Pure."""

from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property

from autotune.core.settings import Key, settings_key
from autotune.core.trial import Trial
from autotune.judging.decisions import objective
from autotune.judging.measurement.speeds import Speeds
from autotune.space.space import Space


class ToTarget:
    """Samples and seconds of trials to the target; None of one that was not there, or without a target."""

    def __init__(self, trials: Iterable[Trial], speeds: Speeds, space: Space) -> None:
        self._trials, self._speeds, self._space = tuple(trials), speeds, space
        self._target = space.objective.aim

    def samples(self, trial: Trial) -> float | None:
        """Training samples until `trial` was there, the mean of all runs that compute the same."""
        return objective.mean(self._runs(trial))

    def most_samples(self, trial: Trial) -> float | None:
        """Training samples until the slowest of those runs was there."""
        return max(self._runs(trial), default=None)

    def seconds(self, trial: Trial) -> float | None:
        """The time that those take at the throughput that is known of its settings, evaluation excluded."""
        samples, throughput = self.samples(trial), self._speeds.of(trial)
        return samples / throughput.samples_per_s if samples and throughput else None

    def _runs(self, trial: Trial) -> list[float]:
        if self._target is None or objective.samples_to(trial, self._target) is None:
            return []
        return self._groups[self._computes(trial)]

    @cached_property
    def _groups(self) -> dict[tuple[Key, str], list[float]]:
        """Of each run; one that was not there by its end counts with all it had, and would need more."""
        found: dict[tuple[Key, str], list[float]] = defaultdict(list)
        for trial in self._trials:
            if self._target is not None and trial.completed and trial.measurement.curve:
                samples = objective.samples_to(trial, self._target) or trial.measurement.curve[-1].samples
                found[self._computes(trial)].append(samples)
        return found

    def _computes(self, trial: Trial) -> tuple[Key, str]:
        """Returns a key of what a trial computes: its settings, but for those of speed, and its code."""
        return settings_key(trial.config, self._space.known.same_quality), trial.measurement.origin[1]
