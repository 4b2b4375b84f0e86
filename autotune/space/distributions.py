"""The knobs as Optuna draws them: a parameter for each, and the way from a configuration there and back."""

from optuna.distributions import (
    BaseDistribution,
    CategoricalChoiceType,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from autotune.core.settings import Config, Setting
from autotune.space.knobs import Distribution, Drawn, ScaledLearningRate
from autotune.space.space import Space


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """What Optuna draws from: a parameter for every knob that follows no other."""
    return {_parameter(name, knob): distribution(knob.drawn_from) for name, knob in space.drawn_knobs.items()}


def configuration(params: dict[str, CategoricalChoiceType], space: Space) -> dict[str, Setting]:
    """The configuration at `params`."""
    drawn: dict[str, Setting] = {}
    for name, knob in space.drawn_knobs.items():
        value = params[_parameter(name, knob)]
        drawn[name] = 2 ** int(value or 0) if knob.drawn_from.exponents else value
    return space.config(drawn)


def parameters(config: Config, space: Space) -> dict[str, Setting]:
    """Where `config` lies: the parameters that it would have been drawn with."""
    drawn, positions = space.drawn(config), {}
    for name, knob in space.drawn_knobs.items():
        value = drawn[name]
        if knob.drawn_from.exponents:
            value = int(value or 1).bit_length() - 1
        positions[_parameter(name, knob)] = value
    return positions


def distribution(knob: Distribution) -> BaseDistribution:
    """What Optuna draws a knob from: of consecutive powers of two the exponent."""
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
    """The name of the Optuna parameter behind a knob: what is searched where that is not the value itself."""
    scaled = f"{name}_multiplier" if isinstance(knob, ScaledLearningRate) else name
    return f"log2_{scaled}" if knob.drawn_from.exponents else scaled
