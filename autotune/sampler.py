"""Optuna proposes the next configuration, knowing every trial so far: pending and failed ones too."""

from collections.abc import Sequence

import optuna

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
            suggestion = study.ask()
            config = suggest(suggestion, space)
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
    """Trial 0: what the user runs today, at its place in the space."""
    study.enqueue_trial(
        {_parameter(n, knob): _position(space.baseline[n], knob) for n, knob in space.knobs.items()}
    )
    suggestion = study.ask()
    suggest(suggestion, space)
    record.begin(suggestion, space.baseline_config)
    return Trial(suggestion.number, space.baseline_config)


def _why_skip(space: Space, config: Config, trials: Sequence[Trial], known: set[str]) -> str | None:
    if violation := space.violation(config):
        return violation
    if failed := feasibility.dominating(config, trials):
        return f"needs no less memory than trial {failed.number}, which ran out of it"
    return record.KNOWN_ALREADY if _key(config) in known else None


def _key(config: Config) -> str:
    return repr(sorted(config.items()))


def suggest(trial: optuna.Trial, space: Space) -> dict[str, Setting]:
    """The knobs' values for `trial`, the learning rate last because it depends on the batch."""
    config = {n: _value(trial, n, k) for n, k in space.knobs.items() if isinstance(k, Distribution)}
    for name, knob in space.knobs.items():
        if isinstance(knob, ScaledLearningRate):
            multiplier = float(_value(trial, _parameter(name, knob), knob.multiplier) or 0)
            config[name] = float(f"{space.learning_rate(config, multiplier):.4g}")  # run what is shown
    return {name: config[name] for name in space.knobs}


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


def _value(trial: optuna.Trial, name: str, knob: Distribution) -> Setting:
    if knob.exponents:
        return int(2 ** trial.suggest_int(_parameter(name, knob), *knob.exponents))
    if knob.choice:
        return trial.suggest_categorical(name, knob.choice)
    if knob.randint:
        return trial.suggest_int(name, *knob.randint)
    if knob.loguniform:
        return trial.suggest_float(name, *knob.loguniform, log=True)
    return trial.suggest_float(name, *(knob.uniform or (0.0, 1.0)))
