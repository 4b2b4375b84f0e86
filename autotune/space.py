"""The search space: YAML in, knobs, limits and the learning-rate rule out."""

import itertools
import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from autotune import units
from autotune.errors import InputError
from autotune.trial import Config, Setting


class Distribution(BaseModel):
    """Where a knob's values come from, in Ray Tune's words: exactly one of the fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    choice: tuple[Setting, ...] | None = Field(None, min_length=1)
    uniform: tuple[float, float] | None = None
    loguniform: tuple[float, float] | None = None
    randint: tuple[int, int] | None = Field(None, description="both ends included")

    @field_validator("choice", mode="before")
    @classmethod
    def _numbers(cls, value: Any) -> Any:
        return [_number(v) for v in value] if isinstance(value, list | tuple) else value

    @model_validator(mode="after")
    def _one_and_ordered(self) -> Self:
        given = self.model_fields_set
        if len(given) != 1:
            raise ValueError(f"exactly one of choice, uniform, loguniform, randint: got {sorted(given)}")
        if not self.choice and not self.bounds[0] < self.bounds[1]:
            raise ValueError(f"the lower bound must be below the upper one: got {list(self.bounds)}")
        if self.loguniform and self.loguniform[0] <= 0:
            raise ValueError(f"loguniform needs bounds above 0: got {list(self.loguniform)}")
        if self.choice and len({(type(v), v) for v in self.choice}) != len(self.choice):
            raise ValueError(f"the values of a choice must differ: got {list(self.choice)}")
        return self

    @property
    def bounds(self) -> tuple[float, float] | tuple[int, int]:
        """The lowest and the highest value of what is no choice."""
        return self.uniform or self.loguniform or self.randint or (0, 0)

    @property
    def exponents(self) -> tuple[int, int] | None:
        """Lowest and highest exponent where the values are consecutive powers of two, else None.

        Such a knob is searched by its exponent: the sampler then knows that 32 lies next to 64.
        """
        if not self.choice or len(self.choice) < 2 or not all(map(_is_power_of_two, self.choice)):
            return None
        found = sorted(int(value or 0).bit_length() - 1 for value in self.choice)
        return (found[0], found[-1]) if found[-1] - found[0] == len(found) - 1 else None

    @property
    def drawn_from(self) -> "Distribution":
        """Where the value that is searched for comes from: here, the knob's own."""
        return self

    def beside(self, value: Setting) -> list[Setting]:
        """The values next to `value`: of numbers the one below and the one above, of names all others."""
        if self.randint:
            low, high = self.randint
            return [v for v in (int(value or 0) - 1, int(value or 0) + 1) if low <= v <= high]
        others = [v for v in self.choice or () if v != value]
        if any(isinstance(v, bool) or not isinstance(v, int | float) for v in self.choice or ()):
            return others
        number = float(value or 0)
        below = max((v for v in others if float(v or 0) < number), key=lambda v: float(v or 0), default=None)
        above = min((v for v in others if float(v or 0) > number), key=lambda v: float(v or 0), default=None)
        return [v for v in (below, above) if v is not None]

    def draw(self, rng: random.Random) -> Setting:
        """A value at random."""
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


def _is_power_of_two(value: Setting) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0 and value.bit_count() == 1


def _number(value: Any) -> Any:
    """A float written as 1e-4, which YAML 1.1 reads as text."""
    return (
        float(value) if isinstance(value, str) and re.fullmatch(r"[-+]?[\d.]+[eE][-+]?\d+", value) else value
    )


class ScaledLearningRate(BaseModel):
    """`learning_rate = baseline * sqrt(effective batch / baseline's effective batch) * multiplier`.

    The square root keeps the variance of an Adam update constant as the batch grows (Malladi et al., 2022,
    "On the SDEs and Scaling Rules for Adaptive Gradient Algorithms").
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    scale: Literal["sqrt"]
    multiplier: Distribution = Distribution(loguniform=(0.5, 2.0))

    @property
    def drawn_from(self) -> Distribution:
        """Where the value that is searched for comes from: here, the multiplier's."""
        return self.multiplier


class Limits(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    effective_batch_size: tuple[int, int] = (1, 1 << 30)
    memory_fraction: float = Field(0.85, gt=0, le=1)

    @field_validator("effective_batch_size")
    @classmethod
    def _ordered(cls, value: tuple[int, int]) -> tuple[int, int]:
        if not 1 <= value[0] <= value[1]:
            raise ValueError(f"[smallest, largest] with 1 <= smallest <= largest: got {list(value)}")
        return value


_MOST_LISTED = 20_000
_DRAWS = 500
Select = Literal["fastest", "pareto", "time-to-quality"]


class Objective(BaseModel):
    """What wins: the fastest that keeps the quality, or who reaches the quality `target` first.

    `pareto` looks for the whole front of speed and quality; of it, the fastest that keeps the quality wins.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    speed: Literal["throughput"] = "throughput"
    quality: str = "bleu_4"
    keep: float = Field(0.95, ge=0, le=1)
    select: Select = "fastest"
    target: float | None = Field(None, description="the quality to reach, for time-to-quality")

    @model_validator(mode="after")
    def _target_where_needed(self) -> Self:
        if (self.select == "time-to-quality") != (self.target is not None):
            raise ValueError(
                f"a target goes with select: time-to-quality, and only with it: got select {self.select!r} "
                f"and target {self.target!r}"
            )
        return self


_FEWEST_REPEATS = 3


class Budget(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    trials: int = Field(40, ge=1)
    samples_per_trial: int = Field(20000, ge=1)
    evaluations_per_trial: int = Field(4, ge=1, description="quality is seen so often, evenly")
    finalists: int = Field(3, ge=1, description="trials that may be repeated against the baseline")
    repeats: int = Field(3, ge=0, description="of each finalist and the baseline; 0: nothing is confirmed")
    time: float | None = Field(None, description="seconds; none: no limit")

    @field_validator("repeats")
    @classmethod
    def _enough_or_none(cls, value: int) -> int:
        if 0 < value < _FEWEST_REPEATS:
            raise ValueError(f"repeats: 0, or at least {_FEWEST_REPEATS}, for an interval: got {value}")
        return value

    @field_validator("time", mode="before")
    @classmethod
    def _duration(cls, value: Any) -> float | None:
        try:
            return None if value is None else units.seconds(value)
        except InputError as error:
            raise ValueError(str(error)) from None


class Space(BaseModel):
    """What may be tried, what is run today, and what the search may spend."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    workload: str
    baseline: dict[str, Setting]
    knobs: dict[str, Distribution | ScaledLearningRate] = Field(min_length=1)
    limits: Limits = Limits()
    objective: Objective = Objective()
    budget: Budget = Budget()

    @field_validator("baseline", mode="before")
    @classmethod
    def _numbers(cls, value: Any) -> Any:
        return {k: _number(v) for k, v in value.items()} if isinstance(value, dict) else value

    @field_validator("knobs", mode="before")
    @classmethod
    def _by_form(cls, value: Any) -> Any:
        """Each knob as the class that its form names, so that a mistake is explained by that class alone."""
        if not isinstance(value, dict):
            return value
        return {name: _knob(name, spec) for name, spec in value.items()}

    def effective_batch_size(self, config: Config) -> int:
        """Samples per optimizer step under `config`; settings that it lacks are the baseline's."""
        settings = self.settings(config)
        return int(settings["micro_batch_size"] or 1) * int(settings.get("accumulation_steps") or 1)

    def settings(self, config: Config) -> dict[str, Setting]:
        """Every setting of a run: the baseline's, overridden by `config`."""
        return {**self.baseline, **config}

    @property
    def baseline_config(self) -> dict[str, Setting]:
        return {name: self.baseline[name] for name in self.knobs}

    def learning_rate(self, config: Config, multiplier: float) -> float:
        ratio = self.effective_batch_size(config) / self.effective_batch_size({})
        return float(self.baseline["learning_rate"] or 0) * math.sqrt(ratio) * multiplier

    def config(self, drawn: Mapping[str, Setting]) -> dict[str, Setting]:
        """The configuration of `drawn`: every knob's value, and of a scaled learning rate the multiplier."""
        config = {n: drawn[n] for n, knob in self.knobs.items() if isinstance(knob, Distribution)}
        for name, knob in self.knobs.items():
            if isinstance(knob, ScaledLearningRate):
                rate = self.learning_rate(config, float(drawn[name] or 0))
                config[name] = float(f"{rate:.4g}")  # run what is shown
        return {name: config[name] for name in self.knobs}

    def every(self) -> list[dict[str, Setting]] | None:
        """All configurations within the limits, None where they are not finite, or more than 20,000."""
        choices = [knob.drawn_from.choice for knob in self.knobs.values()]
        finite = [choice for choice in choices if choice is not None]
        if len(finite) < len(choices) or math.prod(map(len, finite)) > _MOST_LISTED:
            return None
        combinations = itertools.product(*finite)
        configs = [self.config(dict(zip(self.knobs, values, strict=True))) for values in combinations]
        return [config for config in configs if self.violation(config) is None]

    def neighbours(self, config: Config) -> list[dict[str, Setting]]:
        """The configurations that differ from `config` by one step of one knob."""
        drawn = self.drawn(config)
        return [
            self.config({**drawn, name: value})
            for name, knob in self.knobs.items()
            for value in knob.drawn_from.beside(drawn[name])
        ]

    def shuffled(self, rng: random.Random) -> Iterator[dict[str, Setting]]:
        """Configurations at random: every one of a finite space once; of another some hundred draws."""
        listed = self.every()
        if listed is not None:
            rng.shuffle(listed)
            yield from listed
            return
        for _ in range(_DRAWS):
            yield self.config({name: knob.drawn_from.draw(rng) for name, knob in self.knobs.items()})

    def drawn(self, config: Config) -> dict[str, Setting]:
        """What `config` would draw, near enough where a learning rate was rounded."""
        return {n: self._drawn(config, n, knob) for n, knob in self.knobs.items()}

    def _drawn(self, config: Config, name: str, knob: Distribution | ScaledLearningRate) -> Setting:
        if isinstance(knob, Distribution):
            return config[name]
        multiplier = float(config[name] or 0) / self.learning_rate(config, 1.0)
        if knob.multiplier.choice:
            return min(knob.multiplier.choice, key=lambda value: abs(float(value or 0) - multiplier))
        low, high = knob.multiplier.bounds
        return min(max(multiplier, low), high)

    def contains(self, config: Config) -> bool:
        """Whether `config` says every knob, and each with a value that it may have."""
        if config.keys() != self.knobs.keys():
            return False
        drawn = self.drawn(config)
        return all(knob.drawn_from.contains(drawn[name]) for name, knob in self.knobs.items())

    def violation(self, config: Config) -> str | None:
        """Why `config` is outside the limits, None if it is inside. The baseline is never asked."""
        low, high = self.limits.effective_batch_size
        if "micro_batch_size" not in self.baseline:
            return None
        size = self.effective_batch_size(config)
        return None if low <= size <= high else f"effective batch {size} is outside [{low}, {high}]"


def _knob(name: str, spec: Any) -> Any:
    if not isinstance(spec, dict):
        rule = "a distribution such as {choice: [1, 2]}"
        raise ValueError(f"{name}: {rule}: got {spec!r}")  # noqa: TRY004 - pydantic collects ValueErrors
    kind: type[BaseModel] = ScaledLearningRate if "scale" in spec else Distribution
    try:
        return kind.model_validate(spec)
    except ValidationError as error:
        raise ValueError("; ".join(f"{name}.{m}" for m in _mistakes(error))) from None


def _mistakes(error: ValidationError) -> Iterator[str]:
    for e in error.errors():
        where = ".".join(str(part) for part in e["loc"])
        message = e["msg"].removeprefix("Value error, ")
        if e["type"] == "extra_forbidden":
            message = "no such key"
        elif e["type"] == "missing":
            message = "required"
        elif e["type"] != "value_error":
            message = f"{message[0].lower()}{message[1:]}, got {e['input']!r}"
        yield f"{where}: {message}" if where and e["type"] != "value_error" else message


def parse(text: str, source: str) -> Space:
    """The search space in YAML `text`; raises InputError with every mistake, naming `source`."""
    return from_values(read(text, source), source)


def read(text: str, source: str) -> dict[str, Any]:
    """The mapping in YAML `text`; raises InputError where it is none."""
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InputError(f"search space {source}: not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise InputError(f"search space {source}: must be a mapping, got {type(values).__name__}")
    return values


def from_values(values: Mapping[str, Any], source: str) -> Space:
    """The search space in `values`; raises InputError with every mistake, naming `source`."""
    try:
        return Space.model_validate(dict(values))
    except ValidationError as error:
        raise InputError(f"search space {source}: {'; '.join(_mistakes(error))}") from None


def dump(space: Space) -> str:
    """`space` as YAML that `parse` reads back."""
    return yaml.safe_dump(to_values(space), sort_keys=False)


def to_values(space: Space) -> dict[str, Any]:
    """`space` as plain values that `from_values` reads back."""
    values = space.model_dump(mode="json", exclude_none=False)
    values["knobs"] = {
        name: knob.model_dump(mode="json", exclude_unset=True, exclude_none=True)
        for name, knob in space.knobs.items()
    }
    return values


def complete(space: Space, source: str) -> Space:
    """`space` with the baseline's own value among every choice, so that the search can start from it.

    Raises InputError when the knobs and limits cannot be met, with every mistake in one line.
    """
    mistakes = [f"knob {n}: the baseline must say its value" for n in space.knobs if n not in space.baseline]
    mistakes += _not_numbers(space)
    knobs: dict[str, Distribution | ScaledLearningRate] = {}
    for name, knob in space.knobs.items():
        knobs[name] = knob
        if isinstance(knob, ScaledLearningRate):
            if name != "learning_rate":
                mistakes.append(f"{name}: scale: sqrt is the rule of learning_rate alone")
            if not knob.multiplier.contains(1.0):
                mistakes.append(f"{name}.multiplier: must contain 1.0, the baseline's")
        elif name in space.baseline and not knob.contains(space.baseline[name]):
            if knob.choice is None:
                mistakes.append(f"knob {name}: must contain the baseline's {space.baseline[name]!r}")
            else:
                knobs[name] = Distribution(choice=_with(knob.choice, space.baseline[name]))
    whole = space.model_copy(update={"knobs": knobs})
    mistakes += [] if mistakes else _unreachable(whole)
    if mistakes:
        raise InputError(f"search space {source}: {'; '.join(mistakes)}")
    return whole


def _not_numbers(space: Space) -> list[str]:
    """What the tuner itself computes with, where it is no number: the batch, and the learning rate."""
    found = []
    for name in ("micro_batch_size", "accumulation_steps"):
        knob = space.knobs.get(name)
        values = (knob.choice or knob.bounds) if isinstance(knob, Distribution) else ()
        given = [*values, *([space.baseline[name]] if name in space.baseline else [])]
        wrong = [v for v in given if isinstance(v, bool) or not isinstance(v, int) or v < 1]
        found += [f"{name}: whole numbers of 1 or more: got {wrong[0]!r}"] if wrong else []
    rate = space.baseline.get("learning_rate")
    scaled = isinstance(space.knobs.get("learning_rate"), ScaledLearningRate)
    if scaled and (isinstance(rate, bool) or not isinstance(rate, int | float) or rate <= 0):
        found.append(f"baseline learning_rate: a number above 0, to be scaled: got {rate!r}")
    return found


def _with(values: tuple[Setting, ...], value: Setting) -> tuple[Setting, ...]:
    everything = (*values, value)
    numeric = all(isinstance(v, int | float) and not isinstance(v, bool) for v in everything)
    return tuple(sorted(everything, key=lambda v: float(v or 0))) if numeric else everything


def _unreachable(space: Space) -> list[str]:
    """The limit on the effective batch, where no combination of knobs can meet it."""
    if "micro_batch_size" not in space.baseline:
        return []
    sizes = {
        micro * accumulation
        for micro in _values(space, "micro_batch_size")
        for accumulation in _values(space, "accumulation_steps")
    }
    low, high = space.limits.effective_batch_size
    if any(low <= size <= high for size in sizes):
        return []
    return [f"limits.effective_batch_size [{low}, {high}] allows none of the sizes {sorted(sizes)[:12]}"]


def _values(space: Space, name: str) -> Sequence[int]:
    knob = space.knobs.get(name)
    if isinstance(knob, Distribution):
        if knob.choice:
            return [int(v) for v in knob.choice if v is not None]
        if knob.randint:
            return range(knob.randint[0], knob.randint[1] + 1)
    return [int(space.baseline.get(name) or 1)]
