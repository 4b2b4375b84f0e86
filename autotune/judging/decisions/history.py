"""The trials of a search and everything that follows from them: the ranking, the required quality. Pure.

All code that judges a trial asks here, so that judgements agree and nothing is computed twice.
"""

import math
from collections.abc import Iterable
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Self

from autotune.core.measurement import Measurement
from autotune.core.settings import LENGTH
from autotune.core.trial import Trial, TrialKind
from autotune.judging.decisions import objective, quality
from autotune.judging.decisions.objective import Reason
from autotune.judging.decisions.planning import LengthNeeds, ToTarget
from autotune.judging.decisions.trial_log import TrialLog
from autotune.judging.measurement import curves, estimates
from autotune.judging.measurement.estimates import Figure
from autotune.judging.measurement.speeds import RelativeSpeeds, Speeds, has_interval
from autotune.space.space import Space

_ALMOST = 1.05  # times as long
_CLEAR = 2.5  # standard deviations above the least quality: benchmarks/bench_lengths.py confirms most with it
_LATE = 1.5  # standard deviations: benchmarks/bench_search.py finds fewer wrong winners than with 0 or 1
# What the end of a trial may change, unless it is a run of the baseline, which may change everything.
_CHANGE_WITH_AN_END = ("trial_s", "relative", "to_target", "needs", "ranked", "better", "front")


class History(TrialLog):
    """The trials of a search, and judgements of them, each computed once.

    It is immutable: `after` returns a new history when a trial begins or ends. That takes over the judgements
    which this trial cannot change, as computing them anew takes long if there are a thousand trials.
    """

    def __init__(self, trials: Iterable[Trial], space: Space) -> None:
        super().__init__(trials, space)
        # The same in all histories of a search whose runs of the baseline are the same.
        self.context = object()
        self._ranks: dict[int, tuple[float, float]] = {}

    def after(self, trial: Trial) -> Self:
        """Returns the history with `trial` added, or replaced if its number exists."""
        before, known = self._by_number.get(trial.number), {**self._by_number, trial.number: trial}
        has_ended_before = before is not None and before.outcome is not None
        if trial.original == 0 or has_ended_before or not trial.references <= known.keys():
            return type(self)(known.values(), self.space)
        later = copy(self)
        later.trials, later._by_number = tuple(known.values()), known
        if trial.kind is TrialKind.SEARCHED:
            later._searched = {**self._searched, trial.number: trial}
        stale = ["searched", *(["_repeats"] if trial.repeat else [])]
        if trial.outcome is not None:
            stale += _CHANGE_WITH_AN_END
            later.speeds = self.speeds.including(trial)
            later._ranks = {} if self.space.objective.target is not None else dict(self._ranks)
            for equal in later.speeds.equals(trial):
                later._ranks.pop(equal.number, None)
        for name in stale:
            later.__dict__.pop(name, None)
        return later

    @cached_property
    def least_quality(self) -> float | None:
        """The lowest quality that a winner may have; None while the baseline's quality is unknown."""
        goal = self.space.objective
        if goal.aim is not None:
            return goal.aim
        reference = self.baseline_quality
        return None if reference is None else objective.least(goal, reference, self.start)

    @property
    def least_share(self) -> float:
        """The share of the baseline's gain that must be kept."""
        return objective.least_share(self.space.objective, self.baseline_quality or 0.0, self.start)

    def keeps_quality(self, trial: Trial) -> bool | None:
        """Returns True if `trial` ended with the required quality, or reached the target; None if unknown."""
        if self.least_quality is None or objective.final_quality(trial, self.space) is None:
            return None
        if self.space.objective.target is not None:
            return objective.samples_to(trial, self.least_quality) is not None
        is_kept = (curves.end_quality(trial.measurement) or 0.0) >= self.least_quality
        return is_kept or self.space.objective.takes_any_quality

    def is_out_of_reach(self, trial: Trial) -> bool:
        """Returns True if `trial`, run to its end, would clearly miss the required quality."""
        if self.space.objective.takes_any_quality:
            return False
        curve = curves.scaled(trial.measurement.curve, self.whole / self.length(trial))
        return curves.is_out_of_reach(
            curve, self.baseline_curve, self.least_share, self.noise, self.whole, start=self.start
        )

    @cached_property
    def whole(self) -> int:
        """The samples of the baseline's training: as planned, or fewer if it ended by itself."""
        planned, baseline = self.space.budget.samples_per_trial, self.baseline
        if baseline is None or not baseline.measurement.ended or LENGTH in self.space.knobs:
            return planned
        return min(planned, baseline.measurement.samples)

    def length(self, trial: Trial) -> int:
        """Returns the samples of a trial's training: as planned, or until it, or the baseline, has ended."""
        planned, measured = self.space.samples(trial.config), trial.measurement
        if self.whole == self.space.budget.samples_per_trial or LENGTH in trial.config:
            return planned
        return measured.samples if trial.completed and measured.ended else min(planned, self.whole)

    def length_ratio(self, trial: Trial) -> float:
        """Returns the length of the baseline's training divided by the trial's."""
        return self.length(self.baseline) / self.length(trial) if self.baseline else 1.0

    def training_s(self, trial: Trial) -> float | None:
        """Returns the seconds that the whole training would take with a trial's settings; None if unknown."""
        speed, space = self.throughput(trial), self.space
        samples = (space.training.samples or self.whole) / self.length_ratio(trial)
        return samples / speed.value if speed else None

    def trainings_per_s(self, trial: Trial) -> float:
        """Returns how many trainings of a trial's length fit into a second, by its throughput's lower end."""
        return self.surely_per_s(trial) / self.length(trial)

    @cached_property
    def trial_s(self) -> float:
        """The mean time of a completed trial, 0 while unknown."""
        # The times of races and ablation steps must not reopen a finished search.
        counted = (t for t in self.trials if t.completed and t.kind not in (TrialKind.RACE, TrialKind.STEP))
        return objective.mean([t.seconds for t in counted if t.seconds]) or 0.0

    @cached_property
    def speeds(self) -> Speeds:
        """The throughput of all settings that were measured."""
        return Speeds(self.trials, self.space.known)

    @cached_property
    def relative(self) -> RelativeSpeeds:
        """Speeds relative to the baseline; the only place that computes them."""
        return RelativeSpeeds(self.trials, self.baseline, self.speeds, self.space.known)

    @cached_property
    def to_target(self) -> ToTarget:
        """The samples and seconds that each configuration needs to the target, if there is one."""
        return ToTarget(self.trials, self.speeds, self.space)

    @property
    def times_late(self) -> float:
        """The factor by which a trial's time to the target may exceed another trial's by chance alone."""
        by_chance = _LATE * math.sqrt(2) * self.to_target.scatter  # both times vary with their seeds
        return 1 + math.hypot(curves.SURE * self.speeds.drift, by_chance)

    @cached_property
    def needs(self) -> LengthNeeds:
        """The length that each configuration needs to be confirmed as good as the baseline."""
        aim, least = self.baseline_quality, self.least_quality
        slack = 0.0 if aim is None or least is None else aim - least
        noise = quality.noise([self.runs_of(number) for number in self._repeats])
        if aim is not None and noise is not None:  # the more seeds vary, the clearer it has to be
            aim += max(0.0, _CLEAR * noise.deviation - slack)
        return LengthNeeds(self.trials, self.space, aim, slack)

    def needed_samples(self, trial: Trial) -> float | None:
        """Returns the length that a trial's settings need; None while it is unknown, and for the baseline."""
        if not trial.number or self.baseline is None:
            return None
        if self.computes_the_same(trial, at_any_length=True):  # whatever its seeds gave
            return float(self.length(self.baseline))
        if (needed := self.needs.samples(trial)) or not trial.stopped:
            return needed
        curve = curves.scaled(trial.measurement.curve, self.length_ratio(trial))
        expected = curves.quality_at(self.baseline_curve, curve[-1].samples) if curve else None
        if expected is None or self.baseline_quality is None:
            return None
        # Had it gone on as the baseline does.
        at_the_end = self.baseline_quality + curve[-1].quality - expected
        return self.needs.extrapolated(self.length(trial), at_the_end)

    def equal_trainings_per_s(self, trial: Trial) -> float:
        """Returns how many trainings as good as the baseline's, as far as known, fit into a second."""
        return self.surely_per_s(trial) / (self.needed_samples(trial) or self.length(trial))

    def is_long_enough(self, trial: Trial) -> bool:
        """Returns True if a trial's training is about as long as its settings need, or lengths are fixed."""
        needed = self.needed_samples(trial)  # a shorter one that was lucky would fail with other seeds
        return needed is None or needed <= _ALMOST * self.length(trial)

    def throughput(self, trial: Trial) -> Figure | None:
        """Returns samples per second with a trial's settings, over all comparable runs; None if unknown."""
        return self.relative.throughput(trial)

    def factor(self, trial: Trial) -> Figure | None:
        """Returns the throughput relative to the baseline's; None if they cannot be compared."""
        return self.relative.factor(trial)

    def quality(self, trial: Trial) -> Figure | None:
        """Returns the final quality with a trial's settings: the mean of its repeats, if there are any."""
        runs = self.quality_runs(trial)
        if runs == [trial] and objective.final_quality(trial, self.space) is None:
            return None
        return estimates.mean(quality.qualities(runs))

    def quality_runs(self, trial: Trial) -> list[Trial]:
        """Returns the runs from which the quality of a trial's settings is computed."""
        runs, origin = self.runs_of(trial.original), trial.measurement.origin
        if trial.original:  # its first run is biased, because it selected the trial; not so the baseline's
            runs = [run for run in runs if run.repeat and run.measurement.origin == origin]
        return runs or [trial]

    def memory(self, trial: Trial) -> Measurement:
        """Returns the run of a trial's settings with the highest peak; it counts as rising if any run is."""
        runs = {t.number: t for t in (trial, *self.runs_of(trial.original))}
        measured = [t.measurement for t in runs.values()]
        highest = max(measured, key=lambda m: m.peak_memory_bytes or 0)
        return replace(highest, memory_is_rising=any(m.memory_is_rising for m in measured))

    def surely_per_s(self, trial: Trial) -> float:
        """Returns the lower end of a trial's throughput, pooled over trials of equal speed."""
        throughput = self.speeds.pooled_throughput(trial)
        return throughput.samples_per_s - (throughput.half_width_per_s or 0.0) if throughput else 0.0

    def broken_constraint(self, trial: Trial) -> str | None:
        """Returns the user's constraint that a completed trial breaks, None if it breaks none."""
        if not trial.completed or trial.kind in (TrialKind.RACE, TrialKind.STEP):
            return None
        return objective.broken_constraint(trial.measurement, self.space.objective)

    def rejection(self, trial: Trial) -> Reason | None:
        """Returns the reason not to recommend a completed trial, None if there is none."""
        return trial.cached(("rejection", self.context), lambda: self._rejection(trial))

    def _rejection(self, trial: Trial) -> Reason | None:
        figures = (trial.samples_per_s, trial.quality, self.baseline_quality)
        is_measured = all(figure is not None and math.isfinite(figure) for figure in figures)
        if self.baseline is None or not is_measured:
            return Reason.UNMEASURED
        if trial.number == self.baseline.number:
            return None
        goal, measured = self.space.objective, trial.measurement
        if measured.origin != self.baseline.measurement.origin:
            return Reason.ELSEWHERE
        if goal.select == "same-training" and not objective.trains_alike(
            trial.config, self.baseline.config, self.space.known
        ):
            return Reason.ANOTHER
        if objective.over_memory(measured, self.space.limits.memory_fraction):
            return Reason.MEMORY
        if self.broken_constraint(trial):
            return Reason.BROKEN
        if goal.aim is not None:
            missed = Reason.CHANCE if objective.no_quality(measured) else Reason.MISSED
            return None if objective.samples_to(trial, goal.aim) else missed
        if goal.select != "same-training" and not goal.takes_any_quality:
            if objective.no_quality(measured):
                return Reason.CHANCE
            if not self.keeps_quality(trial):
                return Reason.QUALITY
        return Reason.UNSURE if not has_interval(trial) and has_interval(self.baseline) else None

    @cached_property
    def ranked(self) -> tuple[Trial, ...]:
        """The trials that may be recommended, best first; empty before the baseline has completed.

        The best has the shortest training by the lower end of its throughput, so that the surer of two equal
        readings leads; then the higher quality decides. With a target, the best is the quickest to reach it.
        """
        eligible = [t for t in self.searched if t.completed and self.rejection(t) is None]
        for trial in eligible:
            if trial.number not in self._ranks:
                rank = self.trainings_per_s(trial), trial.quality or 0.0
                if self.space.objective.target is not None:
                    seconds = self.to_target.seconds(trial)
                    rank = 1 / seconds if seconds else 0.0, self.surely_per_s(trial)
                self._ranks[trial.number] = rank
        return tuple(sorted(eligible, key=lambda t: self._ranks[t.number], reverse=True))

    @cached_property
    def better(self) -> tuple[Trial, ...]:
        """The trials of `ranked` before the baseline that do not seem slower; none if it is not there."""
        place = next((i for i, t in enumerate(self.ranked) if t.number == 0), 0)
        return tuple(trial for trial in self.ranked[:place] if not self.seems_slower(trial))

    def seems_slower(self, trial: Trial) -> bool:
        """Returns True if a trial's training seems longer than the baseline's, however uncertain that is."""
        speed = None if self.space.objective.target is not None else self.factor(trial)
        return speed is not None and speed.value * self.length_ratio(trial) < 1

    @property
    def best(self) -> Trial | None:
        """The first of `ranked` that does not seem slower: the baseline itself if nothing better may win."""
        return next((trial for trial in self.ranked if not self.seems_slower(trial)), None)

    @cached_property
    def front(self) -> tuple[Trial, ...]:
        """The Pareto front of throughput and quality over completed trials, fastest first."""
        measured = [
            (speed.value, score.value, t)
            for t in self.searched
            if t.completed and (speed := self.throughput(t)) and (score := self.quality(t))
            if math.isfinite(speed.value) and math.isfinite(score.value)
            if self.baseline is None or t.measurement.origin == self.baseline.measurement.origin
            if not t.number or self.broken_constraint(t) is None
        ]
        front: list[tuple[float, Trial]] = []
        for _, best, trial in sorted(measured, key=lambda point: point[:2], reverse=True):
            if not front or best > front[-1][0]:
                front.append((best, trial))
        return tuple(trial for _, trial in front)
