"""Converts between configurations and Optuna parameters."""

import optuna.distributions as of_optuna

from autotune.core.settings import Config, Setting
from autotune.space import configurations
from autotune.space.knobs import Distribution, Drawn, ScaledLearningRate
from autotune.space.space import Space


def distributions(space: Space) -> dict[str, of_optuna.BaseDistribution]:
    """Returns an Optuna distribution for every knob that is searched, by parameter name."""
    return {_parameter(name, knob): distribution(knob.drawn_from) for name, knob in space.drawn_knobs.items()}


def configuration(params: dict[str, of_optuna.CategoricalChoiceType], space: Space) -> dict[str, Setting]:
    drawn: dict[str, Setting] = {}
    for name, knob in space.drawn_knobs.items():
        value = params[_parameter(name, knob)]
        drawn[name] = 2 ** int(value or 0) if knob.drawn_from.exponents else value
    return configurations.configure(space, drawn)


def parameters(config: Config, space: Space) -> dict[str, Setting]:
    """Returns the parameters from which `config` would have been drawn."""
    drawn, params = configurations.drawn_values(space, config), {}
    for name, knob in space.drawn_knobs.items():
        value = drawn[name]
        if knob.drawn_from.exponents:
            value = int(value or 1).bit_length() - 1
        params[_parameter(name, knob)] = value
    return params


def distribution(knob: Distribution) -> of_optuna.BaseDistribution:
    """Returns the Optuna distribution of a knob; over exponents if it has consecutive powers of two."""
    if knob.exponents:
        return of_optuna.IntDistribution(*knob.exponents)
    if knob.choice:
        return of_optuna.CategoricalDistribution(knob.choice)
    if knob.randint:
        return of_optuna.IntDistribution(*knob.randint)
    if knob.loguniform:
        return of_optuna.FloatDistribution(*knob.loguniform, log=True)
    return of_optuna.FloatDistribution(*(knob.uniform or (0.0, 1.0)))


def _parameter(name: str, knob: Drawn) -> str:
    """Returns the name of a knob's Optuna parameter, which says if it is a multiplier or an exponent."""
    scaled = f"{name}_multiplier" if isinstance(knob, ScaledLearningRate) else name
    return f"log2_{scaled}" if knob.drawn_from.exponents else scaled
