"""One estimate of every configuration, from all of its runs that count: what every surface shows. Pure.

Speed is relative to the baseline's. What raced against it has the factor of the race, because turns taken
side by side are not affected by a machine that is slower today. What did not race has the factor of its runs.
Samples per second are the baseline's times the factor: wherever both stand, they agree.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.core.settings import Key, Knowledge, settings_key
from autotune.core.trial import Throughput, Trial
from autotune.judging import racing
from autotune.judging.measure import half_interval
from autotune.judging.racing import Ratio
from autotune.judging.speeds import Speeds

_Settings = tuple[Key, tuple[str, str]]  # what speed depends on, and where it was measured


@dataclass(frozen=True)
class Figure:
    """A measured value and its interval; `low` and `high` are None where unknown."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def part(self) -> float | None:
        """Half of its interval as a share of the value, None where it has none."""
        if self.low is None or self.high is None or not self.value:
            return None
        return (self.high - self.low) / 2 / abs(self.value)


def within(value: float, low: float | None, high: float | None) -> Figure:
    """A figure whose interval counts only where both of its ends are numbers."""
    if low is None or high is None or not math.isfinite(low) or not math.isfinite(high):
        return Figure(value)
    return Figure(value, low, high)


def mean(values: Sequence[float]) -> Figure | None:
    """The mean of `values` from independent runs, with its 95% interval where there are two or more.

    Runs that read the very same are not independent: they say nothing of how far others would lie apart.
    """
    if not values:
        return None
    middle = math.fsum(values) / len(values)
    if len(set(values)) < 2:
        return Figure(middle)
    half = half_interval(values)
    return Figure(middle, middle - half, middle + half)


def of_run(throughput: Throughput | None) -> Figure | None:
    """What a single run has read, with the interval of its own steps."""
    if throughput is None:
        return None
    rate, half = throughput.samples_per_s, throughput.half_width_per_s
    return Figure(rate) if half is None else Figure(rate, max(0.0, rate - half), rate + half)


def times(one: Figure, other: Figure) -> Figure:
    """The product of two figures that know nothing of each other."""
    return _spread(one.value * other.value, one.part, other.part)


def over(one: Figure, other: Figure) -> Figure:
    """The ratio of two positive figures that know nothing of each other."""
    return _spread(one.value / other.value, one.part, other.part)


def _spread(value: float, *parts: float | None) -> Figure:
    """`value` with an interval: the logarithms' squares add up, so that no end is below 0."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return Figure(value)
    apart = math.exp(min(700.0, math.hypot(*known)))
    return within(value, value / apart, value * apart)


def scaled(figure: Figure, times: float) -> Figure:
    """Returns so many `times` the figure, with its interval."""
    low, high = (None if end is None else end * times for end in (figure.low, figure.high))
    return Figure(figure.value * times, low, high)


class Beside:
    """How fast configurations are relative to the baseline, which is None before it has completed."""

    def __init__(
        self, trials: Sequence[Trial], baseline: Trial | None, speeds: Speeds, known: Knowledge
    ) -> None:
        self._baseline, self._speeds, self._neutral = baseline, speeds, known.same_speed
        self._races: dict[int, Ratio] = {}
        self._equals: dict[_Settings, Ratio] = {}
        by_number = {trial.number: trial for trial in trials}
        for race in trials:
            for number in race.race[1:] if race.completed else ():
                found = racing.ratio(race.measurement.slices, number, race.race[0])
                if found is not None and number in by_number:
                    self._races[number] = self._equals[self._settings(by_number[number])] = found

    def _settings(self, trial: Trial) -> _Settings:
        return settings_key(trial.config, self._neutral), trial.measurement.origin

    def raced(self, trial: Trial) -> Ratio | None:
        """What the last race of a trial has shown, or of one with settings as fast; None without a race.

        Settings as fast as the baseline's are the baseline's, as long as they have not raced themselves.
        """
        if trial.original in self._races or self._is_as_the_baseline(trial):
            return self._races.get(trial.original)
        return self._equals.get(self._settings(trial))

    def _is_as_the_baseline(self, trial: Trial) -> bool:
        return self._baseline is not None and self._settings(trial) == self._settings(self._baseline)

    def factor(self, trial: Trial) -> Figure | None:
        """How many times the baseline's throughput that of a trial's settings is; None where it is not known.

        What was measured elsewhere, or with other code, is never compared. A trial that has shown no
        throughput, as a race, has none.
        """
        baseline = self._baseline
        if baseline is None or trial.measurement.throughput is None:
            return None
        if trial.measurement.origin != baseline.measurement.origin:
            return None
        if raced := self.raced(trial):
            return within(raced.factor, raced.low or None, raced.high)
        if self._is_as_the_baseline(trial):
            return Figure(1.0)
        pair = self._alike(trial, baseline)
        return over(*pair) if pair else None

    def throughput(self, trial: Trial) -> Figure | None:
        """Samples per second of a trial's settings: the baseline's times the factor."""
        if trial.measurement.throughput is None:
            return None
        own, factor = self._measured(trial), self.factor(trial)
        level = self._measured(self._baseline) if self._baseline else None
        if factor is None or level is None:
            return own
        if self.raced(trial) or own is None:
            return times(level, factor)
        return scaled(own, level.value * factor.value / own.value)

    def _measured(self, trial: Trial) -> Figure | None:
        """What the runs of a trial's settings have read, those that were alone where there are any."""
        known = (self._speeds.estimate(trial, shared=shared) for shared in (False, True))
        found = next((throughput for throughput in known if throughput), None)
        return of_run(found or trial.measurement.throughput)

    def _alike(self, trial: Trial, baseline: Trial) -> tuple[Figure, Figure] | None:
        """Both, measured in the same company where there is one in which both were."""
        for shared in (False, True):
            ours, theirs = (of_run(self._speeds.estimate(t, shared=shared)) for t in (trial, baseline))
            if ours and theirs:
                return ours, theirs
        ours, theirs = self._measured(trial), self._measured(baseline)
        return (ours, theirs) if ours and theirs else None
