"""Lets Optuna propose the next configuration from every trial so far, pending and failed ones included.

The sampler has its own study in memory, because its feedback depends on the objective, while the session's
study keeps trials as measured.
"""

import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import optuna
from optuna.trial import TrialState, create_trial

from autotune.core.settings import Config
from autotune.core.trial import RejectedFor, RejectedSuggestion, Status, Trial, TrialKind
from autotune.judging.decisions import objective, planning
from autotune.judging.decisions.history import History
from autotune.judging.measurement import curves
from autotune.space import configurations
from autotune.space.distributions import configuration, distributions, parameters
from autotune.space.space import Space

_TRIES = 8
_STARTUP = 3
# With so many results the sampler restarts once it has twice as many, as its time for a suggestion grows with
# their number: half of them are the best, half the newest.
_MOST_RESULTS = 300


@dataclass(frozen=True)
class Feedback:
    """A trial's result for the sampler: the values to maximise, and how far a limit was exceeded."""

    values: tuple[float, ...]
    violation: float = 0.0


@dataclass(frozen=True)
class Refusal:
    """The reason not to run a suggestion, and the sampler's feedback for it: None if it was already tried."""

    kind: RejectedFor
    reason: str
    feedback: Feedback | None = None


class Sampler:
    """Suggests configurations, and learns from the trials that ran them."""

    def __init__(self, space: Space, seed: int) -> None:
        self._space, self._rng = space, random.Random(seed)
        self._distributions = distributions(space)
        # Running trials count as poor; docs/benchmarks.md says why.
        sampler = optuna.samplers.TPESampler(
            seed=seed, multivariate=True, constant_liar=True, n_startup_trials=_STARTUP
        )
        self._study = optuna.create_study(directions=["maximize"] * len(worst(space).values), sampler=sampler)
        self._running: dict[int, int] = {}

    @property
    def is_full(self) -> bool:
        """True if it has so many results that suggestions take long; an `informed` one has fewer."""
        return len(self._study.get_trials(deepcopy=False)) > 2 * _MOST_RESULTS

    def started(self, trial: Trial) -> None:
        """Adds a running trial, which counts as poor until it ends, so that the next suggestion differs."""
        if not configurations.contains(self._space, trial.config):  # from before the space was settled
            return
        self._study.add_trial(
            create_trial(
                state=TrialState.RUNNING,
                params=parameters(trial.config, self._space),
                distributions=self._distributions,
            )
        )
        self._running[trial.number] = self._study.get_trials(deepcopy=False)[-1].number

    def ended(self, trial: Trial, feedback: Feedback) -> None:
        if (number := self._running.pop(trial.number, None)) is not None:
            self._tell(number, feedback)

    def _tell(self, number: int, feedback: Feedback) -> None:
        frozen = self._study.get_trials(deepcopy=False)[number]
        handle = optuna.Trial(self._study, frozen._trial_id)  # the only handle for a trial that was added
        handle.set_constraint("limits", feedback.violation)
        self._study.tell(handle, list(feedback.values))

    def suggest(
        self, screen: Callable[[Config], Config | Refusal], heuristics: Iterable[Config] = ()
    ) -> tuple[Config | None, list[RejectedSuggestion]]:
        """Returns the next configuration, None if none is left, and the suggestions rejected before it.

        `screen` returns the configuration to run for a suggestion, or a refusal. Instead of a suggestion that
        was already tried, one of its neighbours runs.
        """
        passed: list[RejectedSuggestion] = []
        if (heuristic := _first(heuristics, screen)) is not None:
            return heuristic, passed
        for _ in range(_TRIES):
            draw = self._study.ask(self._distributions)
            config = configuration(draw.params, self._space)
            screened = screen(config)
            if not isinstance(screened, Refusal):
                self._study.tell(draw, state=TrialState.FAIL)  # added by `started`, as another one may run
                return screened, passed
            if screened.feedback is not None:
                self._tell(draw.number, screened.feedback)
                passed.append(RejectedSuggestion(config, screened.kind, screened.reason))
                continue
            self._study.tell(draw, state=TrialState.FAIL)
            neighbours = configurations.neighbours(self._space, config)
            self._rng.shuffle(neighbours)
            if (neighbour := _first(neighbours, screen)) is not None:
                return neighbour, passed
        return _first(configurations.shuffled(self._space, self._rng), screen), passed


def informed(history: History, earlier: Sequence[Trial], seed: int) -> Sampler:
    """Returns a sampler that has learnt from the trials of the history and of an `earlier` session."""
    sampler, space = Sampler(history.space, seed), history.space
    known = [t for t in earlier if t.outcome and configurations.contains(space, t.config)]
    before = enumerate(learnable(known, History(earlier, space)))
    results = [(replace(trial, number=-1 - place), result) for place, (trial, result) in before]
    results += learnable([t for t in history.trials if t.kind is not TrialKind.RACE], history)
    for trial, result in results:
        sampler.started(trial)
        if result:
            sampler.ended(trial, result)
    return sampler


def learnable(trials: Sequence[Trial], history: History) -> list[tuple[Trial, Feedback | None]]:
    """Returns trials with their feedback, None while they run; of very many, the best and the newest."""
    results = [(t, feedback(t, history) if t.outcome else None) for t in trials]
    if len(results) <= 2 * _MOST_RESULTS:
        return results
    known = [(t, result) for t, result in results if result is not None]
    best = sorted(known, key=lambda one: (-one[1].violation, *one[1].values), reverse=True)
    kept = {t.number for t, _ in (*best[: _MOST_RESULTS // 2], *results[-_MOST_RESULTS // 2 :])}
    return [(t, result) for t, result in results if t.number in kept or result is None]


def _first(configs: Iterable[Config], screen: Callable[[Config], Config | Refusal]) -> Config | None:
    return next((v for v in map(screen, configs) if not isinstance(v, Refusal)), None)


def worst(space: Space) -> Feedback:
    """Returns the feedback for a configuration that cannot be run."""
    return Feedback((0.0, 0.0) if space.objective.select == "pareto" else (0.0,), 1.0)


def feedback(trial: Trial, history: History) -> Feedback:
    """Returns the feedback for a trial that has ended, relative to the other trials of the history."""
    space, goal = history.space, history.space.objective
    if trial.outcome is None or trial.outcome.status is Status.FAILED:
        return worst(space)
    share = objective.memory_share(trial.measurement)
    over = 0.0 if share is None else max(0.0, share - space.limits.memory_fraction)
    if objective.broken_constraint(trial.measurement, goal) and trial.completed:
        return worst(space)
    speed, samples = trial.samples_per_s, trial.measurement.samples
    if goal.aim is not None:  # the inverse of the time; a shortfall is a violation
        if speed and (needed := objective.samples_to(trial, goal.aim)):
            return Feedback((speed / needed,), over)
        can_compare = trial.quality is not None and goal.aim
        missing = max(0.0, 1 - curves.share(trial.quality or 0.0, goal.aim)) if can_compare else 1.0
        return Feedback((speed / samples if speed and samples else 0.0,), over + missing)
    if planning.is_wanted(space):
        return Feedback((history.equal_trainings_per_s(trial),), over)
    quality = quality_share(trial, history)
    if speed is None or (quality is not None and not math.isfinite(quality)):
        return worst(space)
    if goal.select == "pareto":
        return Feedback((speed, quality or 0.0), over)
    is_free = quality is None or goal.select == "same-training"
    poor = 0.0 if is_free else max(0.0, history.least_share - (quality or 0.0))
    return Feedback((speed,), over + poor)


def quality_share(trial: Trial, history: History) -> float | None:
    """Returns a trial's last quality as a share of the baseline's at that point; None if unknown."""
    reference, start = history.baseline_curve, history.start
    for point in reversed(trial.measurement.curve):
        expected = curves.quality_at(reference, point.samples)
        expected = reference[-1].quality if reference and trial.completed else expected
        if expected is not None and curves.gain(expected, start):
            return curves.share(point.quality, expected, start)
    return None
