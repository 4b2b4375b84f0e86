"""The throughput of settings, pooled over all trials of equal speed, and relative to the baseline. Pure."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property

from autotune.core.measurement import Throughput
from autotune.core.settings import COMMON, Config, Key, Knowledge, settings_key
from autotune.core.trial import Trial
from autotune.judging.measurement import curves, estimates, turns
from autotune.judging.measurement.estimates import Figure

_AGREE = 0.02

_Settings = tuple[Key, tuple[str, str]]  # settings that move speed, and origin
_Group = tuple[Key, bool, tuple[str, str]]  # settings, shared, origin: device and revision


class Speeds:
    """The throughput of settings, pooled over ended trials that differ in nothing that could change it.

    They have the same device, code and sharing, and equal settings except those `known` not to affect speed.
    """

    def __init__(self, trials: Iterable[Trial], known: Knowledge = COMMON) -> None:
        self._neutral = known.same_speed
        self._groups: dict[_Group, list[Trial]] = defaultdict(list)
        for trial in trials:
            if trial.outcome is not None and has_interval(trial):
                self._groups[self._group(trial)].append(trial)
        self._pooled: dict[_Group, Throughput] = {}

    def including(self, trial: Trial) -> "Speeds":
        """Returns the speeds with those of a trial that has ended since."""
        if not has_interval(trial):
            return self
        later, group = copy(self), self._group(trial)
        later._groups = self._groups | {group: [*self._groups.get(group, ()), trial]}
        later._pooled = {key: pool for key, pool in self._pooled.items() if key != group}
        later.__dict__.pop("drift", None)
        return later

    def equals(self, trial: Trial) -> Sequence[Trial]:
        """Returns the trials whose speeds are pooled with that of `trial`."""
        return self._groups.get(self._group(trial), ())

    def pooled_throughput(self, trial: Trial) -> Throughput | None:
        """Returns the throughput of `trial`, pooled over its group."""
        return self._pool(self._group(trial)) or trial.measurement.throughput

    def _pool(self, key: _Group) -> Throughput | None:
        if key not in self._pooled and (group := self._groups.get(key)):
            self._pooled[key] = pooled(group)
        return self._pooled.get(key)

    def throughput_like(self, config: Config, like: Trial) -> Throughput | None:
        """Returns the throughput of `config` under the conditions of trial `like`, None if unmeasured."""
        _, shared, origin = self._group(like)
        return self._pool((settings_key(config, self._neutral), shared, origin))

    def estimate(self, trial: Trial, *, shared: bool) -> Throughput | None:
        """Returns the throughput of a trial's settings, alone or beside others (`shared`), if known."""
        settings, _, origin = self._group(trial)
        key = settings, shared, origin
        if (throughput := self._pool(key)) is None:
            return None
        runs = len(self._groups[key])  # they differ, so the half-width has a least value
        drift = curves.SURE * self.drift * throughput.samples_per_s / math.sqrt(runs)
        return replace(throughput, half_width_per_s=max(throughput.half_width_per_s or 0.0, drift))

    def _group(self, trial: Trial) -> _Group:
        return trial.key_without(self._neutral), trial.measurement.shared, trial.measurement.origin

    @cached_property
    def drift(self) -> float:
        """The relative standard deviation between runs of equal settings; 0 without repeats."""
        squares, degrees = list[float](), 0
        for group in (group for group in self._groups.values() if len(group) > 1):
            rates = [trial.samples_per_s or 0.0 for trial in group]
            mean = math.fsum(rates) / len(rates)
            squares += [(rate / mean - 1) ** 2 for rate in rates]
            degrees += len(rates) - 1
        return math.sqrt(math.fsum(squares) / degrees) if degrees else 0.0

    def disagreements(self) -> list[tuple[Trial, Trial, float]]:
        """Returns the slowest and fastest trial of equal settings, and how far apart they are.

        Only those further apart than 2%, and than their intervals allow.
        """
        pairs = []
        for group in self._groups.values():
            ordered = sorted(group, key=lambda t: t.samples_per_s or 0.0)
            slowest, fastest = ordered[0], ordered[-1]
            ends = (estimates.throughput_figure(t.measurement.throughput) for t in (fastest, slowest))
            ratio = estimates.divide(*filter(None, ends))
            if ratio.value > 1 + _AGREE and (ratio.low or 0.0) > 1:
                pairs.append((slowest, fastest, ratio.value - 1))
        return sorted(pairs, key=lambda item: item[2], reverse=True)


class RelativeSpeeds:
    """The speeds of configurations relative to the baseline, which is None before it has completed.

    A configuration that raced has the factor of the race: turns side by side are not distorted by a machine
    that is slower today. Others have the factor of their runs. A throughput is that factor times the
    throughput of the baseline, so that both figures always agree.
    """

    def __init__(
        self, trials: Sequence[Trial], baseline: Trial | None, speeds: Speeds, known: Knowledge
    ) -> None:
        self._baseline, self._speeds, self._neutral = baseline, speeds, known.same_speed
        self._races: dict[int, Figure] = {}
        self._equals: dict[_Settings, Figure] = {}
        by_number = {trial.number: trial for trial in trials}
        for race in trials:
            for number in race.race[1:] if race.completed else ():
                factor = turns.ratio(race.measurement.slices, number, race.race[0])
                if factor is not None and number in by_number:
                    self._races[number] = self._equals[self._settings(by_number[number])] = factor

    def _settings(self, trial: Trial) -> _Settings:
        return trial.key_without(self._neutral), trial.measurement.origin

    def raced(self, trial: Trial) -> Figure | None:
        """Returns the factor in the last race of a trial, or of equally fast settings, if there was one."""
        if trial.original in self._races or self._is_as_the_baseline(trial):  # never that of equals
            return self._races.get(trial.original)
        return self._equals.get(self._settings(trial))

    def _is_as_the_baseline(self, trial: Trial) -> bool:
        return self._baseline is not None and self._settings(trial) == self._settings(self._baseline)

    def factor(self, trial: Trial) -> Figure | None:
        """Returns the throughput of a trial's settings relative to the baseline's; None if unknown."""
        baseline = self._baseline
        if baseline is None or trial.measurement.throughput is None:
            return None
        if trial.measurement.origin != baseline.measurement.origin:
            return None
        if raced := self.raced(trial):
            return raced
        if self._is_as_the_baseline(trial):
            return Figure(1.0)
        for shared in (False, True):  # preferably both alone or both alongside others
            runs = (self._speeds.estimate(t, shared=shared) for t in (trial, baseline))
            throughput, reference = map(estimates.throughput_figure, runs)
            if throughput and reference:
                return estimates.divide(throughput, reference)
        throughput, reference = self._measured(trial), self._measured(baseline)
        return estimates.divide(throughput, reference) if throughput and reference else None

    def throughput(self, trial: Trial) -> Figure | None:
        """Returns samples per second with a trial's settings: the baseline's times the factor."""
        if trial.measurement.throughput is None:
            return None
        measured, factor = self._measured(trial), self.factor(trial)
        level = self._measured(self._baseline) if self._baseline else None
        if factor is None or level is None:
            return measured
        if self.raced(trial) or measured is None:
            return estimates.multiply(level, factor)
        return measured.scaled(level.value * factor.value / measured.value)

    def _measured(self, trial: Trial) -> Figure | None:
        candidates = (self._speeds.estimate(trial, shared=shared) for shared in (False, True))
        measured = next((throughput for throughput in candidates if throughput), None)
        return estimates.throughput_figure(measured or trial.measurement.throughput)


def pooled(trials: Sequence[Trial]) -> Throughput:
    """Returns the mean throughput of trials of the same settings, weighted by measured time."""
    parts = [t.measurement.throughput for t in trials if t.measurement.throughput]
    seconds = math.fsum(p.seconds for p in parts)
    rate = math.fsum(p.samples_per_s * p.seconds for p in parts) / seconds
    within = math.sqrt(math.fsum(((p.half_width_per_s or 0.0) * p.seconds / seconds) ** 2 for p in parts))
    rates = [p.samples_per_s for p in parts]
    between = (max(rates) - min(rates)) / 2
    return Throughput(rate, max(within, between), sum(p.steps for p in parts), seconds)


def has_interval(trial: Trial) -> bool:
    """Returns True if a trial took enough steps for an interval of its throughput."""
    throughput = trial.measurement.throughput
    return throughput is not None and throughput.half_width_per_s is not None
