"""Other ways to search over a table: Zeus, and what users would write with Ray Tune, Optuna or Lightning.

Each is at its best: it knows the objective, ends a trial at the target if there is one, and its winner is
confirmed as this project confirms its own.
"""

import math
import random
import statistics
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, Protocol

import optuna
from optuna.samplers import BaseSampler, GPSampler, RandomSampler, TPESampler
from optuna.study import StudyDirection
from optuna.trial import TrialState

from autotune.core.measurement import Evaluation, Measurement
from autotune.core.settings import MICRO_BATCH, Config
from autotune.core.trial import Outcome, Status, Trial
from autotune.judging.decisions import confirm, pilot
from autotune.judging.decisions.history import History
from autotune.judging.measurement import curves
from autotune.space import configurations, distributions
from autotune.space.space import Space
from lab.replay.replay import Machine, Moment, Result, Simulated
from lab.replay.table import Table

_REDUCTION = 2  # of ASHA's rungs; Ray's default of 4 would leave a single rung of four evaluations
_ENOUGH = 2.0  # Zeus' beta: a training that costs as many times the best one is given up
_EXPLORATIONS = 2  # of Zeus, of every batch size


Strategy = Callable[[Table, int, int], Result]
Cut = Callable[[Measurement, Measurement], int | None]


class Suggest(Protocol):
    """Suggests the next configuration, given the ended trials; None if it has no other."""

    def __call__(self, ended: Sequence[Trial]) -> Config | None: ...


class Rules(NamedTuple):
    """A way to search: the suggestions, and which trials are cut off.

    `cut` takes a trial's and the baseline's measurement, and returns the number of evaluations after which it
    cuts the trial off, None if never.
    """

    suggest: Suggest
    cut: Cut | None = None


class _Sampled:
    """Suggestions of an Optuna sampler.

    The sampler is told the inverse of the seconds to the target; without a target, throughput and quality, or
    with `weighted` the sum of the two, each relative to the baseline. Samplers ignore a failed trial; with
    `constrained` they are told that it breaks a constraint.
    """

    def __init__(
        self, space: Space, sampler: BaseSampler, *, weighted: bool = False, constrained: bool = False
    ) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._space, self._constrained = space, constrained
        self._single = weighted or space.objective.aim is not None
        self._study = optuna.create_study(
            directions=[StudyDirection.MAXIMIZE] * (1 if self._single else 2), sampler=sampler
        )
        self._asked: optuna.Trial | None = None

    def __call__(self, ended: Sequence[Trial]) -> Config | None:
        if self._asked is not None:
            self._tell(self._asked, self._values(ended), is_infeasible=_has_failed(ended[-1]))
        while True:
            self._asked = self._study.ask(distributions.distributions(self._space))
            config = distributions.configuration(self._asked.params, self._space)
            if self._space.violation(config) is None:
                return config
            self._tell(self._asked, self._worst(), is_infeasible=True)  # at no cost

    def _worst(self) -> list[float]:
        return [0.0] * len(self._study.directions)

    def _tell(self, asked: optuna.Trial, values: list[float] | None, *, is_infeasible: bool) -> None:
        if self._constrained:
            asked.set_constraint("limits", 1.0 if is_infeasible else 0.0)
            values = values or self._worst()
        if values is None:
            self._study.tell(asked, state=TrialState.FAIL)
        else:
            self._study.tell(asked, values)

    def _values(self, ended: Sequence[Trial]) -> list[float] | None:
        """Returns the figures of the last trial for the sampler, to be maximized; None if it failed."""
        trial, aim = ended[-1], self._space.objective.aim
        if _has_failed(trial) or trial.samples_per_s is None:
            return None
        if aim is not None:
            needed = curves.samples_to_reach(trial.measurement.curve, aim)
            return [trial.samples_per_s / needed if needed else 0.0]
        if self._single:
            return [_weighted(trial.measurement, trial.measurement.curve[-1], ended[0].measurement)]
        return [trial.samples_per_s, trial.quality or 0.0]


def _has_failed(trial: Trial) -> bool:
    return trial.outcome is not None and trial.outcome.status is Status.FAILED


def optuna_search(space: Space, seed: int) -> Rules:
    """Returns OptunaSearch as in Ray Tune's documentation: default sampler, every trial in full."""
    return Rules(_Sampled(space, TPESampler(seed=seed)))


def optuna_constrained(space: Space, seed: int) -> Rules:
    """Does the same as `optuna_search`, but reports out-of-memory trials as breaking a constraint."""
    return Rules(_Sampled(space, TPESampler(seed=seed), constrained=True))


def gaussian_process(space: Space, seed: int) -> Rules:
    """Returns Optuna's GP sampler, which is told failures as constraints; it needs SciPy.

    SciPy is no dependency of the tests: Transformers and Lightning import it if they can, which takes
    seconds.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = GPSampler(seed=seed)
    return Rules(_Sampled(space, sampler, constrained=True))


def random_search(space: Space, seed: int) -> Rules:
    """Returns random search, with every trial in full."""
    return Rules(_Sampled(space, RandomSampler(seed=seed)))


def asha(space: Space, seed: int) -> Rules:
    """Returns random trials under asynchronous successive halving (Li et al., 2020) of a weighted sum."""
    return Rules(_Sampled(space, RandomSampler(seed=seed), weighted=True), _halving())


def bohb(space: Space, seed: int) -> Rules:
    """Returns BOHB (Falkner et al., 2018): a model's suggestions under successive halving; the model is TPE.

    Ray's version needs HpBandSter, which cannot be installed together with current libraries.
    """
    return Rules(_Sampled(space, TPESampler(seed=seed), weighted=True), _halving())


def _halving() -> Cut:
    """Returns ASHA's rule: at every evaluation whose number is a power of two, the better half goes on."""
    rungs: dict[int, list[float]] = defaultdict(list)

    def cut(shown: Measurement, baseline: Measurement) -> int | None:
        for position, point in enumerate(shown.curve[:-1], start=1):
            if math.log(position, _REDUCTION) % 1:
                continue
            score = _weighted(shown, point, baseline)
            rungs[position].append(score)
            better = sorted(rungs[position], reverse=True)[: max(1, len(rungs[position]) // _REDUCTION)]
            if score < better[-1]:
                return position
        return None

    return cut


def _weighted(shown: Measurement, point: Evaluation, baseline: Measurement) -> float:
    if not shown.throughput or not baseline.throughput or not baseline.quality:
        return 0.0
    speed = shown.throughput.samples_per_s / baseline.throughput.samples_per_s
    return speed / 2 + curves.share(point.quality, baseline.quality) / 2


def doubling(space: Space, _: int) -> Rules:
    """Returns the search of Lightning's batch size finder: it doubles the batch until it does not fit."""

    def suggest(ended: Sequence[Trial]) -> Config | None:
        least = 2 * int(ended[-1].config[MICRO_BATCH] or 0)
        larger = [size for size in _batch_sizes(space) if size >= least]
        return _with_batch(space, larger[0]) if larger and not _has_failed(ended[-1]) else None

    return Rules(suggest)


def zeus(space: Space, seed: int) -> Rules:
    """Returns Zeus' choice of a batch size, with the time to the target as the cost; needs a target."""
    costs: dict[int, list[float]] = defaultdict(list)
    sizes = _zeus_sizes(space, random.Random(seed), costs)
    next(sizes)  # the default, which runs as the baseline

    def suggest(ended: Sequence[Trial]) -> Config | None:
        costs[int(ended[-1].config[MICRO_BATCH] or 0)].append(_cost(ended[-1], space))
        size = next(sizes, None)
        return None if size is None else _with_batch(space, size)

    def cut(shown: Measurement, _: Measurement) -> int | None:
        most_s = _ENOUGH * min(map(min, costs.values()))
        late = (i for i, point in enumerate(shown.curve[:-1], start=1) if point.seconds > most_s)
        return next(late, None)

    return Rules(suggest, cut)


def _zeus_sizes(space: Space, rng: random.Random, costs: dict[int, list[float]]) -> Iterator[int]:
    """Yields the batch sizes to try (You, Chung & Chowdhury, NSDI 2023, section 4), given the `costs` so far.

    Twice every size from the best one downwards, then upwards, until one does not reach the target; then
    Thompson sampling over the costs, as Gaussians, of those that did.
    """
    sizes, best = _batch_sizes(space), int(space.baseline[MICRO_BATCH] or 0)
    for _ in range(_EXPLORATIONS):
        reached: list[int] = []
        for way in ([s for s in reversed(sizes) if s <= best], [s for s in sizes if s > best]):
            for size in way:
                yield size
                if math.isinf(costs[size][-1]):
                    break
                reached.append(size)
        if not reached:
            return
        sizes = sorted(reached)
        best = min(sizes, key=lambda size: statistics.fmean(costs[size]))
    while True:
        known = {size: [cost for cost in costs[size] if math.isfinite(cost)] for size in sizes}
        yield min(sizes, key=lambda size: _drawn_mean(known[size], rng))


def _drawn_mean(costs: Sequence[float], rng: random.Random) -> float:
    return rng.gauss(statistics.fmean(costs), statistics.stdev(costs) / math.sqrt(len(costs)))


def _cost(trial: Trial, space: Space) -> float:
    """Returns the seconds that a trial took to the target; infinite if it did not reach it."""
    reached = curves.samples_to_reach(trial.measurement.curve, space.objective.aim or 0.0)
    return math.inf if reached is None or not trial.completed else trial.seconds


def _batch_sizes(space: Space) -> list[int]:
    """Returns the micro-batches that the space allows if nothing else changes, in ascending order."""
    choice = space.drawn_knobs[MICRO_BATCH].drawn_from.choice or ()
    sizes = sorted(int(size or 0) for size in choice)
    return [size for size in sizes if space.violation(_with_batch(space, size)) is None]


def _with_batch(space: Space, size: int) -> Config:
    return configurations.changed(space, space.baseline_config, {MICRO_BATCH: size})


def search(rules: Callable[[Space, int], Rules], table: Table, seed: int, trials: int) -> Result:
    """Searches by `rules`, after the two runs of the baseline that settle the quality to reach."""
    machine, ended, seconds = Machine(table, seed), list[Trial](), 0.0
    for repeat in (None, confirm.noise_repeat()):
        trial = Trial(len(ended), table.space.baseline_config, repeat=repeat)
        simulated = machine.run(trial, None, at_s=seconds)
        seconds += simulated.seconds
        ended.append(_ended(trial, simulated))
    space = pilot.settled(History(ended, table.space)).space
    suggest, cut = rules(space, seed)
    moments = [Moment(seconds, 1, space.baseline_config)]
    while len(moments) < trials and (config := suggest(ended)) is not None:
        trial = Trial(len(ended), config)
        simulated = machine.run(trial, None, at_s=seconds, target=space.objective.aim)
        if cut and (at := cut(simulated.measurement, ended[0].measurement)):
            simulated = _cut_off(simulated, at)
        seconds += simulated.seconds
        ended.append(_ended(trial, simulated))
        best = History(ended, space).best
        moments.append(Moment(seconds, len(ended), best.config if best else None))
    return _confirmed(space, machine, ended, moments, seconds)


def _cut_off(simulated: Simulated, evaluations: int) -> Simulated:
    """Returns the trial as if it had been stopped after that many evaluations."""
    measurement = simulated.measurement
    curve = measurement.curve[:evaluations]
    share = curve[-1].samples / max(1, measurement.samples)
    return Simulated(
        Outcome(Status.STOPPED, reason="was cut off"),
        replace(measurement, curve=curve, quality=curve[-1].quality),
        simulated.seconds * share,
    )


def _ended(trial: Trial, simulated: Simulated) -> Trial:
    return replace(
        trial,
        outcome=simulated.outcome,
        measurement=simulated.measurement,
        seconds=simulated.seconds,
    )


def _confirmed(
    space: Space, machine: Machine, ended: Sequence[Trial], moments: Sequence[Moment], seconds: float
) -> Result:
    """Confirms the winner as this project does; the other strategies have no confirmation of their own."""
    history, trials = History(ended, space), list(ended)
    while (step := confirm.next_step(history)) is not None:
        again = Trial(len(trials), step.config, repeat=step.repeat, race=step.race)
        simulated = machine.run(
            again,
            None,
            members=[trials[n] for n in step.race],
            at_s=seconds,
            target=space.objective.aim,
        )
        seconds += simulated.seconds
        trials.append(_ended(again, simulated))
        history = History(trials, space)
    found = confirm.confirmed(history)
    winner = found[0].config if found else space.baseline_config
    return Result(tuple(moments), tuple(trials), winner, found is not None, seconds)


_RULES: dict[str, Callable[[Space, int], Rules]] = {
    "optuna": optuna_search,
    "told": optuna_constrained,
    "gp": gaussian_process,
    "random": random_search,
    "asha": asha,
    "bohb": bohb,
    "doubling": doubling,
    "zeus": zeus,
}
OTHERS: dict[str, Strategy] = {name: partial(search, rules) for name, rules in _RULES.items()}
