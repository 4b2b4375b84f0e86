"""What is known of speed: every measurement of the same settings counts for all of them. Pure."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property

from autotune.core.settings import COMMON, Config, Key, Knowledge, settings_key
from autotune.core.trial import Throughput, Trial
from autotune.judging import curves

_AGREE = 0.02

_Group = tuple[Key, bool, tuple[str, str]]  # settings, shared, origin: device and revision


class Speeds:
    """The throughput of settings, from all trials that differ in nothing that could change it.

    Everything that can is in the key: the settings except those `known` to leave speed alone, whether other
    trials ran alongside it, the device, and the code's revision. What still runs does not count.
    """

    def __init__(self, trials: Iterable[Trial], known: Knowledge = COMMON) -> None:
        self._neutral = known.same_speed
        self._groups: dict[_Group, list[Trial]] = defaultdict(list)
        for trial in trials:
            if trial.outcome is not None and _half_width(trial) is not None:
                self._groups[self._group(trial)].append(trial)

    def of(self, trial: Trial) -> Throughput | None:
        """The figure of `trial`: with those of its equals, where there are some."""
        group = self._groups.get(self._group(trial))
        return pooled(group) if group else trial.measurement.throughput

    def known(self, config: Config, like: Trial) -> Throughput | None:
        """What `config` would read alongside trial `like`, None where nothing equal was measured yet."""
        _, shared, origin = self._group(like)
        group = self._groups.get((settings_key(config, self._neutral), shared, origin))
        return pooled(group) if group else None

    def estimate(self, trial: Trial, *, shared: bool) -> Throughput | None:
        """That of the settings of `trial` alongside other trials or alone; None where it was not measured so.

        Other runs would read otherwise, so half of its interval is at least two standard deviations of the
        drift for so many runs.
        """
        settings, _, origin = self._group(trial)
        group = self._groups.get((settings, shared, origin))
        if not group:
            return None
        found = pooled(group)
        moved = curves.SURE * self.drift * found.samples_per_s / math.sqrt(len(group))
        return replace(found, half_width_per_s=max(found.half_width_per_s or 0.0, moved))

    def _group(self, trial: Trial) -> _Group:
        m = trial.measurement
        return settings_key(trial.config, self._neutral), m.shared, m.origin

    @cached_property
    def drift(self) -> float:
        """The relative standard deviation between runs of the same settings; 0 while there is none."""
        squares, degrees = 0.0, 0
        for group in self._groups.values():
            rates = [trial.samples_per_s or 0.0 for trial in group]
            mean = math.fsum(rates) / len(rates)
            squares += sum((rate / mean - 1) ** 2 for rate in rates)
            degrees += len(rates) - 1
        return math.sqrt(squares / degrees) if degrees else 0.0

    def disagreements(self) -> list[tuple[Trial, Trial, float]]:
        """Trials of the same settings whose figures differ by more than 2%, and by what share; most first."""
        found = []
        for group in self._groups.values():
            ordered = sorted(group, key=lambda t: t.samples_per_s or 0.0)
            slowest, fastest = ordered[0], ordered[-1]
            apart = (fastest.samples_per_s or 0.0) / (slowest.samples_per_s or 1.0) - 1
            if apart > _AGREE:
                found.append((slowest, fastest, apart))
        return sorted(found, key=lambda item: item[2], reverse=True)


def pooled(trials: Sequence[Trial]) -> Throughput:
    """One figure for trials of the same settings, each counting as long as it was measured.

    Half of its interval is the steps' own, or half of what the trials lie apart where that is more.
    """
    parts = [t.measurement.throughput for t in trials if t.measurement.throughput]
    seconds = math.fsum(p.seconds for p in parts)
    rate = math.fsum(p.samples_per_s * p.seconds for p in parts) / seconds
    within = math.sqrt(math.fsum(((p.half_width_per_s or 0.0) * p.seconds / seconds) ** 2 for p in parts))
    rates = [p.samples_per_s for p in parts]
    between = (max(rates) - min(rates)) / 2
    return Throughput(rate, max(within, between), sum(p.steps for p in parts), seconds)


def _half_width(trial: Trial) -> float | None:
    throughput = trial.measurement.throughput
    return throughput.half_width_per_s if throughput else None
