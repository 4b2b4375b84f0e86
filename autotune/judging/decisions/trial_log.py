"""The trials of a search in order, and what the baseline's runs measured. Pure."""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property

from autotune.core.measurement import Evaluation
from autotune.core.settings import Config, settings_key
from autotune.core.trial import Trial, TrialKind
from autotune.judging.decisions import objective, planning, quality
from autotune.judging.measurement import curves
from autotune.space import lengths
from autotune.space.space import Space


class TrialLog:
    """The trials of a search in order, running ones included.

    Trials that refer to missing ones, as in a damaged study, are left out.
    """

    def __init__(self, trials: Iterable[Trial], space: Space) -> None:
        everything = tuple(trials)
        numbers = {trial.number for trial in everything}
        self.trials, self.space = tuple(t for t in everything if t.references <= numbers), space

    def trial(self, number: int) -> Trial:
        """Returns trial `number`; raises KeyError if there is none."""
        return self._by_number[number]

    @cached_property
    def _by_number(self) -> dict[int, Trial]:
        return {trial.number: trial for trial in self.trials}

    @cached_property
    def searched(self) -> tuple[Trial, ...]:
        """The trials of the search itself: no repeats, races or ablation steps."""
        return tuple(self._searched.values())

    @cached_property
    def _searched(self) -> dict[int, Trial]:
        return {t.number: t for t in self.trials if t.kind is TrialKind.SEARCHED}

    def trained_alike(self, config: Config) -> list[Trial]:
        """Returns the searched trials with the settings of `config`, at any length."""
        key = settings_key(config, planning.WITHOUT_LENGTH)
        return [t for t in self.searched if t.key_without(planning.WITHOUT_LENGTH) == key]

    @cached_property
    def baseline(self) -> Trial | None:
        """Trial 0, once it has completed: every result is stated relative to it."""
        first = self._by_number.get(0)
        return first if first and first.completed else None

    @property
    def failed_baseline(self) -> Trial | None:
        """Trial 0 if it ended without completing: no trial can then be compared with it."""
        first = self._by_number.get(0)
        return first if first and first.outcome and not first.completed else None

    def runs_of(self, number: int) -> list[Trial]:
        """Returns trial `number` and its repeats, without runs that have not completed."""
        own = self._by_number.get(number)
        return [t for t in (own, *self.repeats_of(number)) if t is not None and t.completed]

    def run_s(self, trial: Trial) -> float | None:
        """Returns the median seconds of whole runs with a trial's settings, from process start to end.

        Adds the time of evaluations that the user's training has and the run lacked. None if trials are not
        whole trainings.
        """
        if not planning.is_wanted(self.space) or lengths.miniature(self.space):
            return None
        whole = []
        for run in self.runs_of(trial.original):
            measured, every = run.measurement, self.space.samples_per_evaluation(run.config)
            # A resumed run has started more than once; of one that was only recovered, no start is known.
            trained_s = max((p.seconds for p in measured.curve), default=-1.0)
            if measured.shared or measured.resumed or run.seconds <= trained_s:
                continue
            missing = 0.0 if every is None else self.space.samples(run.config) / every - len(measured.curve)
            whole.append(run.seconds + max(0.0, missing) * (measured.outside.evaluation_s or 0.0))
        return statistics.median(whole) if whole else None

    def runs_s(self, *trials: Trial) -> list[float]:
        """Returns `run_s` of each trial; [] unless it is known for all of them."""
        known = [seconds for trial in trials if (seconds := self.run_s(trial)) is not None]
        return known if len(known) == len(trials) else []

    def computes_the_same(self, trial: Trial, *, at_any_length: bool = False) -> bool:
        """Returns True if a trial computes the same as the baseline, up to the order of operations."""
        same = self.space.known.same_figures
        ignored = same | planning.WITHOUT_LENGTH if at_any_length else same
        return trial.key_without(ignored) == settings_key(self.space.baseline_config, ignored)

    def repeats_of(self, number: int) -> Sequence[Trial]:
        """Returns the repeats of trial `number`, running ones included."""
        return self._repeats.get(number, ())

    @cached_property
    def _repeats(self) -> dict[int, list[Trial]]:
        repeats: dict[int, list[Trial]] = defaultdict(list)
        for trial in self.trials:
            if trial.repeat:
                repeats[trial.original].append(trial)
        return repeats

    @cached_property
    def baseline_curve(self) -> tuple[Evaluation, ...]:
        """The baseline's quality over samples, the mean of all its runs."""
        return curves.mean_curve([t.measurement.curve for t in self.runs_of(0)])

    @cached_property
    def noise(self) -> float | None:
        """The relative SD of quality between equal runs, from the baseline's repeats; None without any."""
        return curves.relative_noise([t.measurement.curve for t in self.runs_of(0)], self.start)

    @cached_property
    def start(self) -> float | None:
        """The quality that the baseline started from, None if unknown."""
        return objective.start(self.baseline) if self.baseline else None

    @cached_property
    def baseline_quality(self) -> float | None:
        """The baseline's final quality, the mean of all its runs."""
        return objective.mean(quality.qualities(self.runs_of(0)))
