"""Which knobs matter, as far as that is known well enough to report. Pure.

What the ablation has measured comes first. Without one it is PED-ANOVA (Watanabe et al., 2023): what the best
of the trials have in common. Some of that is chance, the more values a knob has the more: what the figures
show in shuffled order is subtracted, and an objective that shows no more than that is left out.
"""

import math
import random
import statistics
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain

import optuna
from optuna.importance import PedAnovaImportanceEvaluator
from optuna.trial import FrozenTrial, create_trial

from autotune.core.settings import Config, Known, Result, settings_key
from autotune.core.trial import Trial
from autotune.judging import ablation
from autotune.judging.estimates import Figure
from autotune.judging.history import History
from autotune.judging.measure import student_t
from autotune.space import distributions
from autotune.space.space import Space

_FEWEST_TRIALS = 20
_FEWEST_AT_THE_TOP = 5  # below that PED-ANOVA is said to be unstable
_TOP_SHARES = (0.1, 0.5)
_GROUPS = 10  # of trials, each of which is left out once
_LEVEL = 0.95
_SHUFFLES = 19  # that chance shows more than all of them happens once in twenty times

Shares = Mapping[str, Figure]


def importance(history: History) -> dict[str, Shares]:
    """What each knob does to throughput and to quality: shares that sum to 1, the largest first.

    Only knobs that may move it count, and at least two are needed. The throughput of stopped trials counts,
    too.
    """
    found = {"throughput": _of_speed(history), history.space.objective.quality: _of_quality(history)}
    return {name: shares for name, shares in found.items() if shares}


def _of_speed(history: History) -> Shares:
    """Settings that are equally fast have one figure, and count once."""
    if steps := ablation.steps(history):
        return _of_ablation(steps)
    neutral = history.space.known.same_speed
    once = {settings_key(t.config, neutral): t for t in _ended(history)}
    found = [(t.config, figure.value) for t in once.values() if (figure := history.throughput(t))]
    return _analysed(found, history.space, lambda known: known.moves_speed)


def _of_quality(history: History) -> Shares:
    whole = [t for t in _ended(history) if t.completed]
    found = [(t.config, figure.value) for t in whole if (figure := history.quality(t))]
    return _analysed(found, history.space, lambda known: known.moves_result > Result.EQUAL)


def _of_ablation(steps: Iterable[ablation.Step]) -> Shares:
    """Each measured change's part of all that was moved, faster or slower, on a scale of factors."""
    logs = {
        " and ".join((*step.together, step.knob)): (math.log(step.factor.value), _half(step.factor))
        for step in steps
        if step.factor
    }
    total = math.fsum(abs(log) for log, _ in logs.values())
    if len(logs) < 2 or not total:
        return {}
    return _sorted({name: _share(abs(log) / total, half / total) for name, (log, half) in logs.items()})


def _half(factor: Figure) -> float:
    """Half of its interval, on a scale of factors."""
    return math.log(factor.high / factor.low) / 2 if factor.low and factor.high else math.inf


def _share(value: float, half: float) -> Figure:
    return Figure(value, max(0.0, value - half), min(1.0, value + half))


def _sorted(shares: Shares) -> Shares:
    return dict(sorted(shares.items(), key=lambda item: item[1].value, reverse=True))


def _ended(history: History) -> list[Trial]:
    """The configurations whose trials ended well, on the same device and code as the baseline."""
    baseline = history.baseline
    return [
        t
        for t in history.searched
        if t.ended_well
        and history.space.contains(t.config)
        and (baseline is None or t.measurement.origin == baseline.measurement.origin)
    ]


def _analysed(
    found: Sequence[tuple[Config, float]], space: Space, may_move: Callable[[Known], bool]
) -> Shares:
    """The knobs' shares by PED-ANOVA, with their intervals; empty where they are not known well enough.

    The intervals are those of a jackknife over groups of trials (Tukey, 1958). A learning rate that follows
    the batch counts by its multiplier: by its own value it would share in what the batch does.
    """
    finite = [(config, value) for config, value in found if math.isfinite(value)]
    names = [name for name in space.drawn_knobs if may_move(space.known[name])]
    if len(finite) < _FEWEST_TRIALS or len({value for _, value in finite}) < 2 or len(names) < 2:
        return {}
    trials = _trials(finite, names, space)
    chance = [_divergences(shuffled, names) for shuffled in _shuffled(trials)]
    divergences = _divergences(trials, names)
    if max(divergences.values()) <= max(max(each.values()) for each in chance):
        return {}
    usual = {name: statistics.fmean(each[name] for each in chance) for name in names}
    groups = [trials[group::_GROUPS] for group in range(_GROUPS)]
    without = [
        _shares(_divergences(list(chain(*groups[:n], *groups[n + 1 :])), names), usual)
        for n in range(_GROUPS)
    ]
    shares = _shares(divergences, usual)
    return _sorted({name: _share(shares[name], _error([each[name] for each in without])) for name in names})


def _shuffled(trials: Sequence[FrozenTrial]) -> Iterator[list[FrozenTrial]]:
    """The same configurations, and the same values in other orders, so that no knob has caused them."""
    rng, values = random.Random(0), [trial.value for trial in trials]
    for _ in range(_SHUFFLES):
        rng.shuffle(values)
        yield [
            create_trial(value=value, params=trial.params, distributions=trial.distributions)
            for value, trial in zip(values, trials, strict=True)
        ]


def _shares(divergences: Mapping[str, float], usual: Mapping[str, float]) -> dict[str, float]:
    """What is beyond the usual, as shares that sum to 1; all are 0 where nothing is."""
    beyond = {name: max(0.0, found - usual[name]) for name, found in divergences.items()}
    total = math.fsum(beyond.values())
    return {name: found / total if total else 0.0 for name, found in beyond.items()}


def _error(without: Sequence[float]) -> float:
    """Half of the interval of a share, from what it is `without` each of the groups."""
    middle, count = statistics.fmean(without), len(without)
    squares = math.fsum((share - middle) ** 2 for share in without)
    return student_t(_LEVEL, count - 1) * math.sqrt((count - 1) / count * squares)


def _trials(found: Sequence[tuple[Config, float]], names: Sequence[str], space: Space) -> list[FrozenTrial]:
    """`found` as trials of Optuna, with the parameters of the knobs of these names."""
    drawn = dict(zip(space.drawn_knobs, distributions.distributions(space).items(), strict=True))
    chosen = {name: drawn[name] for name in names}
    trials = []
    for config, value in found:
        placed = distributions.parameters(config, space)
        params = {name: placed[parameter] for name, (parameter, _) in chosen.items()}
        kinds = {name: kind for name, (_, kind) in chosen.items()}
        trials.append(create_trial(value=value, params=params, distributions=kinds))
    return trials


def _divergences(trials: Sequence[FrozenTrial], names: Sequence[str]) -> dict[str, float]:
    """How far the best trials' values of a knob differ from all: a tenth of the trials, more of few."""
    low, high = _TOP_SHARES
    quantile = min(high, max(low, _FEWEST_AT_THE_TOP / len(trials)))
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings(action="ignore"):  # that the result may say little, and is experimental
        study = optuna.create_study(direction="maximize")
        study.add_trials(trials)
        told = PedAnovaImportanceEvaluator(target_quantile=quantile).evaluate(study)
    return {name: told.get(name, 0.0) for name in names}
