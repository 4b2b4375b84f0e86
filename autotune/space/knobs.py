"""The knobs of a search space: distributions, and rules for knobs that follow others."""

import math
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails

from autotune.core import units
from autotune.core.errors import did_you_mean
from autotune.core.settings import LARGEST_INT, Setting

_LARGEST = 1e30  # representable by the sampler
_LARGEST_SHARE = 16.0  # of the baseline's length


def as_number(value: Any) -> Any:
    """Converts a float written as 1e-4, which YAML 1.1 reads as text."""
    is_number = isinstance(value, str) and re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+", value)
    return float(value) if is_number else value


class SpacePart(BaseModel):
    """A frozen part of a search space, without unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def _one_of_the_fields(schema: dict[str, Any]) -> None:
    """Repeats the validators below in JSON Schema: exactly one source, and no nulls."""
    for field in schema["properties"].values():
        field.update(next(form for form in field.pop("anyOf") if form != {"type": "null"}))
    schema["oneOf"] = [{"required": [name]} for name in schema["properties"] if name != "moves"]


class Distribution(SpacePart):
    """The values of a knob, in Ray Tune's terms: exactly one field besides `moves`."""

    model_config = ConfigDict(json_schema_extra=_one_of_the_fields)

    choice: tuple[Annotated[Setting, BeforeValidator(as_number)], ...] | None = Field(
        None, min_length=1, description="one of these values; the baseline's own is added if it is missing"
    )
    uniform: tuple[float, float] | None = Field(
        None, description="a number from [lowest, highest], uniformly distributed"
    )
    loguniform: tuple[float, float] | None = Field(
        None, description="a number above 0 from [lowest, highest], log-uniformly distributed"
    )
    randint: tuple[int, int] | None = Field(
        None, description="a whole number from [lowest, highest], both included"
    )

    moves: tuple[Literal["speed", "memory", "quality"], ...] | None = Field(
        None, description="what the setting changes, if not everything: speed, memory, quality"
    )

    @model_validator(mode="after")
    def _one_and_ordered(self) -> Self:
        given = self.model_fields_set - {"moves"}
        if len(given) != 1:
            raise ValueError(f"exactly one of choice, uniform, loguniform, randint, got {sorted(given)}")
        low, high = self.bounds
        least, most = 1 / _LARGEST, LARGEST_INT if self.randint else _LARGEST
        shown = units.quote(list(self.choice or self.bounds))
        if not self.choice and not low < high:
            raise ValueError(f"the lower bound must be below the upper one, got {shown}")
        if self.loguniform and low < least:
            raise ValueError(f"loguniform needs bounds above 0, from {least:g}, got {shown}")
        if self.choice and len({(type(v), v) for v in self.choice}) != len(self.choice):
            raise ValueError(f"the values of a choice must differ, got {shown}")
        if max(-low, high) > most:
            raise ValueError(f"bounds between {-most:g} and {most:g}, got {shown}")
        return self

    @property
    def bounds(self) -> tuple[float, float] | tuple[int, int]:
        """Lowest and highest value; (0, 0) for a choice."""
        return self.uniform or self.loguniform or self.randint or (0, 0)

    def with_choice(self, values: Sequence[Setting]) -> "Distribution":
        return Distribution(choice=tuple(values), moves=self.moves)

    def including(self, value: Setting) -> "Distribution":
        """Returns the choice with one more value; numbers are sorted."""
        everything = (*(self.choice or ()), value)
        numeric = all(isinstance(v, int | float) and not isinstance(v, bool) for v in everything)
        return self.with_choice(sorted(everything, key=_number) if numeric else everything)

    @property
    def exponents(self) -> tuple[int, int] | None:
        """Lowest and highest exponent if the values are consecutive powers of two, else None."""
        # The sampler searches the exponent, so that 32 and 64 are neighbours.
        values = self.choice or ()
        powers = sorted(v.bit_length() - 1 for v in values if type(v) is int and v > 0 and v.bit_count() == 1)
        if len(values) < 2 or len(powers) < len(values):
            return None
        return (powers[0], powers[-1]) if powers[-1] - powers[0] == len(powers) - 1 else None

    @property
    def drawn_from(self) -> "Distribution":
        return self

    def neighbours(self, value: Setting) -> list[Setting]:
        """Returns the neighbours of `value`: the next lower and higher number, or all other words."""
        if self.randint:
            low, high = self.randint
            return [v for v in (int(value or 0) - 1, int(value or 0) + 1) if low <= v <= high]
        others = [v for v in self.choice or () if v != value]
        if any(isinstance(v, bool) or not isinstance(v, int | float) for v in self.choice or ()):
            return others
        ordered = sorted(others, key=_number)
        below = [v for v in ordered if _number(v) < _number(value)]
        return [*below[-1:], *ordered[len(below) :][:1]]

    def draw(self, rng: random.Random) -> Setting:
        if self.choice:
            return rng.choice(self.choice)
        if self.randint:
            return rng.randint(*self.randint)
        if self.loguniform:
            low, high = map(math.log, self.loguniform)
            return math.exp(rng.uniform(low, high))
        return rng.uniform(*self.bounds)

    def contains(self, value: Setting) -> bool:
        if self.choice:
            return any(value == v and type(value) is type(v) for v in self.choice)
        low, high = self.bounds
        return isinstance(value, int | float) and low <= value <= high


class ScaledLearningRate(SpacePart):
    """`learning_rate = baseline * sqrt(effective batch / baseline's effective batch) * multiplier`.

    The square root keeps the variance of an Adam update constant as the batch grows (Malladi et al., 2022,
    "On the SDEs and Scaling Rules for Adaptive Gradient Algorithms").
    """

    scale: Literal["sqrt"] = Field(
        description="the baseline's learning rate grows with the square root of the effective batch"
    )
    multiplier: Distribution = Field(
        Distribution(loguniform=(0.5, 8.0)),
        description="the searched factor on the scaled rate; its values must include 1",
    )

    @field_validator("multiplier")
    @classmethod
    def _are_numbers(cls, value: Distribution) -> Distribution:
        low, high = 1e-6, 1e6  # representable by the sampler
        wrong = [v for v in value.choice or value.bounds if not low <= (units.number(v) or 0.0) <= high]
        if wrong:
            raise ValueError(f"numbers from {low:g} to {high:g}, got {units.quote(wrong[0])}")
        return value

    @property
    def drawn_from(self) -> Distribution:
        return self.multiplier


class KeptBatch(SpacePart):
    """`accumulation_steps = baseline's effective batch / (micro_batch_size * processes)`; it is not searched.

    Every configuration then has the baseline's effective batch, so that qualities are comparable.
    """

    keep: Literal["effective_batch_size"] = Field(
        description="accumulation_steps follow the micro-batch, so that the effective batch stays the "
        "baseline's, which every micro-batch must divide"
    )


_Names = Annotated[
    tuple[str, ...],
    BeforeValidator(
        lambda given: (given,) if isinstance(given, str) else given,
        json_schema_input_type=str | tuple[str, ...],
    ),
]


class PlannedLength(SpacePart):
    """The length of a training, which the search plans in samples and passes on in the user's own settings.

    A batch twice as large then takes half the steps. The first setting ends the training; the others, such as
    the end of the schedule or the warm-up, are scaled with it.
    """

    steps: _Names = Field((), description="settings that count optimizer steps, such as max_iters")
    epochs: _Names = Field((), description="settings that count epochs")
    samples: _Names = Field((), description="settings that count samples")
    share: tuple[float, float] = Field(
        (0.1, 2.0), description="[shortest, longest] that may be planned, as shares of the baseline's length"
    )

    @model_validator(mode="after")
    def _one_unit(self) -> Self:
        given = [unit for unit in ("steps", "epochs", "samples") if getattr(self, unit)]
        if len(given) != 1:
            raise ValueError(f"exactly one of steps, epochs, samples, got {given}")
        low, high = self.share
        if not 0 < low <= 1 <= high <= _LARGEST_SHARE:
            rule = f"0 < shortest <= 1 <= longest <= {_LARGEST_SHARE:g}"
            raise ValueError(f"share: [shortest, longest] with {rule}, got {units.quote(list(self.share))}")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The settings that hold the training's length; the first one ends it."""
        return self.steps or self.epochs or self.samples

    def renamed(self, name: Callable[[str], str]) -> Self:
        unit = next(unit for unit in ("steps", "epochs", "samples") if getattr(self, unit))
        return self.model_copy(update={unit: tuple(map(name, self.names))})


Drawn = Distribution | ScaledLearningRate  # has a parameter in the sampler
Knob = Drawn | KeptBatch | PlannedLength
_FORMS: Mapping[str, type[BaseModel]] = {
    "scale": ScaledLearningRate,
    "keep": KeptBatch,
    **dict.fromkeys(("steps", "epochs", "samples"), PlannedLength),
}


def read_knob(name: str, spec: Any) -> BaseModel:
    """Returns the knob in `spec`, whose keys select its class; raises ValueError with every mistake."""
    if not isinstance(spec, dict):
        rule = "a distribution such as {choice: [1, 2]}"
        raise ValueError(f"{name}: {rule}, got {units.quote(spec)}")  # noqa: TRY004 - pydantic collects ValueErrors
    kind = next((form for key, form in _FORMS.items() if key in spec), Distribution)
    try:
        return kind.model_validate(spec)
    except ValidationError as error:
        raise ValueError("; ".join(f"{name}.{m}" for m in mistakes(error, kind))) from None


def mistakes(error: ValidationError, model: type[BaseModel]) -> Iterator[str]:
    """Yields the mistakes in values of a `model`, each with its location."""
    for e in error.errors():
        where = ".".join(str(part) for part in e["loc"])
        says_its_name = (where, e["type"]) == ("knobs", "value_error")  # raised by `read_knob`
        mistake = explain_error(e, model)
        yield f"{where}: {mistake}" if where and not says_its_name else mistake


def explain_error(error: ErrorDetails, model: type[BaseModel]) -> str:
    """Returns the mistake in a value of a `model`, without its location."""
    match error["type"]:
        case "extra_forbidden":
            return f"no such key{did_you_mean(error['loc'][-1], _keys(error['loc'], model))}"
        case "missing":
            return "required"
        case "value_error":
            return error["msg"].removeprefix("Value error, ")
    return f"{error['msg'][0].lower()}{error['msg'][1:]}, got {units.quote(error['input'])}"


def _keys(place: Sequence[int | str], model: type[BaseModel]) -> list[str]:
    for part in place[:-1]:
        inner = model.model_fields[str(part)].annotation
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            return []
        model = inner
    return list(model.model_fields)


def _number(value: Setting) -> int | float:
    """Returns a number unchanged: an int may be too large for a float, and is rejected elsewhere."""
    return value if isinstance(value, int | float) else 0
