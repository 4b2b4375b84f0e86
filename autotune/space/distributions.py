"""Converts between configurations and Optuna parameters."""

from optuna.distributions import (
    BaseDistribution,
    CategoricalChoiceType,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from autotune.core.settings import Config, Setting
from autotune.space import configurations
from autotune.space.knobs import Distribution, Drawn, ScaledLearningRate
from autotune.space.space import Space


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """Returns an Optuna distribution for every knob that is searched, by parameter name."""
    return {_parameter(name, knob): distribution(knob.drawn_from) for name, knob in space.drawn_knobs.items()}


def configuration(params: dict[str, CategoricalChoiceType], space: Space) -> dict[str, Setting]:
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


def distribution(knob: Distribution) -> BaseDistribution:
    """Returns the Optuna distribution of a knob; over exponents if it has consecutive powers of two."""
    if knob.exponents:
        return IntDistribution(*knob.exponents)
    if knob.choice:
        return CategoricalDistribution(knob.choice)
    if knob.randint:
        return IntDistribution(*knob.randint)
    if knob.loguniform:
        return FloatDistribution(*knob.loguniform, log=True)
    return FloatDistribution(*(knob.uniform or (0.0, 1.0)))


def _parameter(name: str, knob: Drawn) -> str:
    """Returns the name of a knob's Optuna parameter, which says if it is a multiplier or an exponent."""
    scaled = f"{name}_multiplier" if isinstance(knob, ScaledLearningRate) else name
    return f"log2_{scaled}" if knob.drawn_from.exponents else scaled
