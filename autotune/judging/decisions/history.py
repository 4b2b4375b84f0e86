"""The trials of a search with its space, and what follows from them: the ranking, what must be kept. Pure.

All code that judges a trial asks here, so that all judge alike, and nothing is computed twice.
"""

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from typing import Self

from autotune.core.measurement import Evaluation, Measurement
from autotune.core.settings import LENGTH
from autotune.core.trial import Trial, TrialKind
from autotune.judging.decisions import objective, quality
from autotune.judging.decisions.objective import Reason
from autotune.judging.decisions.planning import LengthNeeds, ToTarget
from autotune.judging.measurement import curves, estimates
from autotune.judging.measurement.estimates import Figure
from autotune.judging.measurement.speeds import RelativeSpeeds, Speeds
from autotune.space.space import Space

_ALMOST = 1.05  # times as long


class History:
    """All that follows from the trials of a search, in order, running ones included.

    It never changes: when a trial has begun or ended, a new one is made of all of them (`after`). What it is
    asked for is computed once, when it is first asked for.

    A trial that repeats another is a measurement of that one, and never wins itself; nor does an
    ablation step, or a race. What is of a trial that is not there, as in a damaged study, is of none.
    """

    def __init__(self, trials: Iterable[Trial], space: Space) -> None:
        given = tuple(trials)
        numbers = {trial.number for trial in given}
        self.trials, self.space = tuple(t for t in given if t.references <= numbers), space

    def after(self, trial: Trial) -> Self:
        """Returns the history once `trial` is as given: begun, if it is new, or ended."""
        return type(self)({**self._by_number, trial.number: trial}.values(), self.space)

    def of(self, number: int) -> Trial:
        """Returns trial `number`; raises KeyError if there is none."""
        return self._by_number[number]

    @cached_property
    def _by_number(self) -> dict[int, Trial]:
        return {trial.number: trial for trial in self.trials}

    @cached_property
    def searched(self) -> tuple[Trial, ...]:
        """The configurations that were tried: no repeats, no races, no ablation steps."""
        return tuple(t for t in self.trials if t.kind is TrialKind.SEARCHED)

    @cached_property
    def baseline(self) -> Trial | None:
        """Trial 0, once it has completed: every result is stated relative to it."""
        first = self._by_number.get(0)
        return first if first and first.completed else None

    @property
    def failed_baseline(self) -> Trial | None:
        """Returns trial 0 if it has ended without completing: nothing can be compared with it, ever."""
        first = self._by_number.get(0)
        return first if first and first.outcome and not first.completed else None

    def runs_of(self, number: int) -> list[Trial]:
        """Trial `number` and its repeats, as far as they have completed."""
        return list(self._runs.get(number, ()))

    @cached_property
    def _runs(self) -> dict[int, list[Trial]]:
        runs: dict[int, list[Trial]] = defaultdict(list)
        for trial in self.trials:
            if trial.completed:
                for number in {trial.number, trial.original}:
                    runs[number].append(trial)
        return runs

    @cached_property
    def baseline_curve(self) -> tuple[Evaluation, ...]:
        """The baseline's quality by samples, the mean of all its runs."""
        return curves.mean_curve([t.measurement.curve for t in self.runs_of(0)])

    @cached_property
    def noise(self) -> float | None:
        """The scatter of quality between equal runs, by the baseline's own repeats; None without any."""
        return curves.relative_noise([t.measurement.curve for t in self.runs_of(0)], self.start)

    @cached_property
    def start(self) -> float | None:
        """The quality that the baseline began with, None if that is not known."""
        return objective.start(self.baseline) if self.baseline else None

    @cached_property
    def baseline_quality(self) -> float | None:
        """The baseline's quality in the end, the mean of all its runs."""
        return objective.mean(quality.qualities(self.runs_of(0)))

    @cached_property
    def least_quality(self) -> float | None:
        """The lowest quality that a winner may have: the target if there is one, else what must be kept.

        None while the baseline's is not known.
        """
        goal = self.space.objective
        if goal.aim is not None:
            return goal.aim
        if self.baseline_quality is None:
            return None
        return objective.least(goal, self.baseline_quality, self.start)

    @property
    def least_share(self) -> float:
        """The share of the baseline's gain that must be kept."""
        return objective.least_share(self.space.objective, self.baseline_quality or 0.0, self.start)

    def keeps_quality(self, trial: Trial) -> bool | None:
        """Returns True if `trial` ended with that, or was at the target; None if nothing can be compared."""
        if self.least_quality is None or objective.final_quality(trial, self.space) is None:
            return None
        if self.space.objective.target is not None:
            return objective.samples_to(trial, self.least_quality) is not None
        return (
            self.space.objective.takes_any_quality
            or (curves.ended_with(trial.measurement) or 0.0) >= self.least_quality
        )

    def is_out_of_reach(self, trial: Trial) -> bool:
        """Returns True if a whole `trial` would clearly end below the quality that must be kept."""
        if self.space.objective.takes_any_quality:
            return False
        whole = self.space.budget.samples_per_trial
        curve = curves.scaled(trial.measurement.curve, whole / self.length(trial))
        return curves.is_out_of_reach(
            curve, self.baseline_curve, self.least_share, self.noise, whole, start=self.start
        )

    def length(self, trial: Trial) -> int:
        """Returns the samples of the training that a trial is: as planned, or until its workload ended it."""
        shown = trial.measurement
        if trial.completed and shown.ended and LENGTH not in trial.config:
            return shown.samples
        return self.space.samples(trial.config)

    def shorter(self, trial: Trial) -> float:
        """Returns how many times the samples of a trial's training the baseline's has."""
        return self.length(self.baseline) / self.length(trial) if self.baseline else 1.0

    def training_s(self, trial: Trial) -> float | None:
        """Returns the seconds that the whole training takes with a trial's settings, evaluation excluded."""
        speed, space = self.throughput(trial), self.space
        samples = (space.training.samples or space.budget.samples_per_trial) / self.shorter(trial)
        return samples / speed.value if speed else None

    def trainings_per_s(self, trial: Trial) -> float:
        """Returns how many trainings a second a trial is worth, by the lower end of its throughput."""
        return self.surely_per_s(trial) / self.length(trial)

    @cached_property
    def speeds(self) -> Speeds:
        """The throughput of all settings that were measured."""
        return Speeds(self.trials, self.space.known)

    @cached_property
    def relative(self) -> RelativeSpeeds:
        """The speed of every configuration relative to the baseline: the one place that says it."""
        return RelativeSpeeds(self.trials, self.baseline, self.speeds, self.space.known)

    @cached_property
    def to_target(self) -> ToTarget:
        """The samples and seconds of every configuration until it was at the target, if there is one."""
        return ToTarget(self.trials, self.speeds, self.space)

    @cached_property
    def needs(self) -> LengthNeeds:
        """The lengths that trainings of all settings need for the baseline's quality."""
        quality, least = self.baseline_quality, self.least_quality
        slack = 0.0 if quality is None or least is None else quality - least
        return LengthNeeds(self.trials, self.space, quality, slack)

    def worth(self, trial: Trial) -> float:
        """Returns how many trainings a second a trial's settings are worth, each as good as the baseline's.

        Each is as long as the trial's if lengths are not planned.
        """
        needed = self.needs.samples(trial) if trial.number else None
        return self.surely_per_s(trial) / (needed or self.length(trial))

    def is_long_enough(self, trial: Trial) -> bool:
        """Returns True if a trial's training is about as long as its settings need, or lengths are fixed.

        One that has the quality by luck would lose it with other seeds.
        """
        needed = self.needs.samples(trial) if trial.number else None
        return needed is None or needed <= _ALMOST * self.length(trial)

    def throughput(self, trial: Trial) -> Figure | None:
        """Samples per second of a trial's settings, over all runs that count; None if it has shown none."""
        return self.relative.throughput(trial)

    def factor(self, trial: Trial) -> Figure | None:
        """Returns how many times the baseline's throughput that is; None if they cannot be compared."""
        return self.relative.factor(trial)

    def quality(self, trial: Trial) -> Figure | None:
        """The quality that a trial's settings end with: of a trial that was repeated that of the repeats.

        Its own run was chosen for what it showed. The baseline was not chosen: all its runs count.
        """
        runs = self.quality_runs(trial)
        if runs == [trial] and objective.final_quality(trial, self.space) is None:
            return None
        return estimates.mean(quality.qualities(runs))

    def quality_runs(self, trial: Trial) -> list[Trial]:
        """Returns the runs that the quality of a trial's settings rests on."""
        runs, origin = self.runs_of(trial.original), trial.measurement.origin
        if trial.original:
            runs = [run for run in runs if run.repeat and run.measurement.origin == origin]
        return runs or [trial]

    def memory(self, trial: Trial) -> Measurement:
        """Returns the run of a trial's settings with the highest peak, rising if that of any run was."""
        runs = {t.number: t for t in (trial, *self.runs_of(trial.original))}
        shown = [t.measurement for t in runs.values()]
        highest = max(shown, key=lambda m: m.peak_memory_bytes or 0)
        return replace(highest, memory_is_rising=any(m.memory_is_rising for m in shown))

    def surely_per_s(self, trial: Trial) -> float:
        """The lower end of a trial's throughput, its equals counted in."""
        throughput = self.speeds.of(trial)
        return throughput.samples_per_s - (throughput.half_width_per_s or 0.0) if throughput else 0.0

    def breaks(self, trial: Trial) -> str | None:
        """Returns which of the user's own constraints a completed trial breaks, None if it keeps them all.

        Races and steps of an ablation are not there for their scores.
        """
        if not trial.completed or trial.kind in (TrialKind.RACE, TrialKind.STEP):
            return None
        return objective.broken_constraint(trial.measurement, self.space.objective)

    def rejection(self, trial: Trial) -> Reason | None:
        """Returns what keeps a completed trial from being recommended; never rejects a measured baseline."""
        figures = (trial.samples_per_s, trial.quality, self.baseline_quality)
        is_measured = all(figure is not None and math.isfinite(figure) for figure in figures)
        if self.baseline is None or not is_measured:
            return Reason.UNMEASURED
        if trial.number == self.baseline.number:
            return None
        goal, shown = self.space.objective, trial.measurement
        if shown.origin != self.baseline.measurement.origin:
            return Reason.ELSEWHERE
        if goal.select == "same-training" and not objective.trains_alike(
            trial.config, self.baseline.config, self.space.known
        ):
            return Reason.ANOTHER
        if objective.over_memory(shown, self.space.limits.memory_fraction):
            return Reason.MEMORY
        if self.breaks(trial):
            return Reason.BROKEN
        if lost := self._lost(trial):
            return lost
        is_unsure = goal.aim is None and not _is_sure(trial) and _is_sure(self.baseline)
        return Reason.UNSURE if is_unsure else None

    def _lost(self, trial: Trial) -> Reason | None:
        """Returns how a trial has missed the quality that counts, None if it has not."""
        goal, none = self.space.objective, objective.no_quality(trial.measurement)
        if goal.aim is not None:
            missed = Reason.CHANCE if none else Reason.MISSED
            return None if objective.samples_to(trial, goal.aim) else missed
        if goal.select == "same-training" or goal.takes_any_quality:
            return None
        if none:
            return Reason.CHANCE
        return None if self.keeps_quality(trial) else Reason.QUALITY

    @cached_property
    def ranked(self) -> tuple[Trial, ...]:
        """The trials that may be recommended, best first; empty before the baseline has completed.

        Best is whose training takes the least time, by the lower end of its interval of throughput - of two
        that read the same, the surer one - and of equal ones that with the higher quality; or the quickest at
        the target.
        """
        eligible = [t for t in self.searched if t.completed and self.rejection(t) is None]
        return tuple(sorted(eligible, key=self._rank, reverse=True))

    def _rank(self, trial: Trial) -> tuple[float, float]:
        if self.space.objective.target is not None:
            seconds = self.to_target.seconds(trial)
            return (1 / seconds if seconds else 0.0, self.surely_per_s(trial))
        return (self.trainings_per_s(trial), trial.quality or 0.0)

    @cached_property
    def better(self) -> tuple[Trial, ...]:
        """The trials of `ranked` that come before the baseline; none if it is not among them."""
        place = next((i for i, t in enumerate(self.ranked) if t.number == 0), 0)
        return self.ranked[:place]

    @property
    def best(self) -> Trial | None:
        """The first of `ranked`, before any confirming: the baseline itself when nothing better may win."""
        return next(iter(self.ranked), None)

    @cached_property
    def front(self) -> tuple[Trial, ...]:
        """The completed trials, fastest first, that no other one beats in throughput and quality.

        None has more of one of them, and as much of the other. A trial that breaks a constraint is not on it.
        """
        measured = [
            (speed.value, score.value, t)
            for t in self.searched
            if t.completed and (speed := self.throughput(t)) and (score := self.quality(t))
            if math.isfinite(speed.value) and math.isfinite(score.value)
            if self.baseline is None or t.measurement.origin == self.baseline.measurement.origin
            if not t.number or self.breaks(t) is None
        ]
        front: list[tuple[float, Trial]] = []
        for _, best, trial in sorted(measured, key=lambda found: found[:2], reverse=True):
            if not front or best > front[-1][0]:
                front.append((best, trial))
        return tuple(trial for _, trial in front)


def _is_sure(trial: Trial) -> bool:
    """Returns True if it took enough steps for an interval of its throughput."""
    throughput = trial.measurement.throughput
    return throughput is not None and throughput.half_width_per_s is not None
