"""Optuna proposes the next configuration, knowing every trial so far: pending and failed ones too."""

from collections.abc import Mapping, Sequence
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import TrialState, create_trial

from autotune import feasibility
from autotune import study as record
from autotune.space import Distribution, ScaledLearningRate, Space
from autotune.trial import Config, Outcome, Setting, Status, Trial

_TRIES = 60


def make(seed: int) -> optuna.samplers.BaseSampler:
    """TPE over both objectives; knobs are sampled together, running trials count as poor ones."""
    return optuna.samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True, n_startup_trials=5)


def ask(study: optuna.Study, space: Space, trials: Sequence[Trial], seed: int) -> Trial | None:
    """The next trial worth running, recorded in the study; None when the space is exhausted.

    A suggestion outside the limits, known not to fit, or known already is recorded as skipped and told to the
    sampler. Where it goes on suggesting such ones, half of the tries are drawn at random.
    """
    known = {_key(t.config) for t in trials}
    guided = study.sampler
    try:
        for attempt in range(_TRIES):
            if attempt == _TRIES // 2:
                study.sampler = optuna.samplers.RandomSampler(seed)
            suggestion = study.ask(_distributions(space))
            config = _config(suggestion.params, space)
            record.begin(suggestion, config)
            reason = _why_skip(space, config, trials, known)
            if reason is None:
                return Trial(suggestion.number, config)
            outcome = Outcome(Status.SKIPPED, reason=reason)
            record.end(study, Trial(suggestion.number, config, outcome), space.limits.memory_fraction)
        return None
    finally:
        study.sampler = guided


def ask_baseline(study: optuna.Study, space: Space) -> Trial:
    """Trial 0: what the user runs today, at its place in the space.

    One write makes it, so that a kill leaves either this trial under number 0, or none.
    """
    study.add_trial(
        create_trial(
            state=TrialState.RUNNING,
            params={
                _parameter(n, knob): _position(space.baseline[n], knob) for n, knob in space.knobs.items()
            },
            distributions=_distributions(space),
            user_attrs={record.CONFIG: space.baseline_config},
        )
    )
    return Trial(0, space.baseline_config)


def _why_skip(space: Space, config: Config, trials: Sequence[Trial], known: set[str]) -> str | None:
    if violation := space.violation(config):
        return violation
    if failed := feasibility.dominating(config, trials):
        return f"needs no less memory than trial {failed.number}, which ran out of it"
    return record.KNOWN_ALREADY if _key(config) in known else None


def _key(config: Config) -> str:
    return repr(sorted(config.items()))


def _config(params: Mapping[str, Any], space: Space) -> dict[str, Setting]:
    """The knobs' values at `params`, the learning rate last because it depends on the batch."""
    config: dict[str, Setting] = {}
    for name, knob in space.knobs.items():
        if isinstance(knob, Distribution):
            value = params[_parameter(name, knob)]
            config[name] = 2**value if knob.exponents else value
    for name, knob in space.knobs.items():
        if isinstance(knob, ScaledLearningRate):
            rate = space.learning_rate(config, params[_parameter(name, knob)])
            config[name] = float(f"{rate:.4g}")  # run what is shown
    return {name: config[name] for name in space.knobs}


def _distributions(space: Space) -> dict[str, BaseDistribution]:
    """What Optuna is to draw from: a parameter for every knob."""
    return {_parameter(name, knob): _distribution(knob) for name, knob in space.knobs.items()}


def _distribution(knob: Distribution | ScaledLearningRate) -> BaseDistribution:
    if isinstance(knob, ScaledLearningRate):
        return _distribution(knob.multiplier)
    if knob.exponents:
        return IntDistribution(*knob.exponents)
    if knob.choice:
        return CategoricalDistribution(knob.choice)
    if knob.randint:
        return IntDistribution(*knob.randint)
    if knob.loguniform:
        return FloatDistribution(*knob.loguniform, log=True)
    return FloatDistribution(*(knob.uniform or (0.0, 1.0)))


def _parameter(name: str, knob: Distribution | ScaledLearningRate) -> str:
    """The name of the Optuna parameter behind a knob: what is searched where that is not the value itself."""
    if isinstance(knob, ScaledLearningRate):
        return f"{name}_multiplier"
    return f"log2_{name}" if knob.exponents else name


def _position(value: Setting, knob: Distribution | ScaledLearningRate) -> Setting:
    """Where the baseline's `value` lies on the parameter behind its knob."""
    if isinstance(knob, ScaledLearningRate):
        return 1.0
    return int(value or 1).bit_length() - 1 if knob.exponents else value
