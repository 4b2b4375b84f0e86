"""The search space: YAML in, knobs, limits, objective and budget out."""

import itertools
import json
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml
from pydantic import BaseModel, Field, ValidationError, field_validator

from autotune import workloads
from autotune.core import units
from autotune.core.errors import InputError, instead
from autotune.core.settings import (
    ACCUMULATION,
    LEARNING_RATE,
    MICRO_BATCH,
    Config,
    Knowledge,
    Setting,
    effective_batch,
)
from autotune.space.knobs import (
    STRICT,
    Distribution,
    ScaledLearningRate,
    as_number,
    mistakes,
    read_knob,
)
from autotune.space.sections import Budget, Limits, Objective

_RATES = (1e-20, 1e20)  # what the sampler and the arithmetic carry
_MOST_LISTED = 20_000
_DRAWS = 500


class Space(BaseModel):
    """What may be tried, what is run today, and what the search may spend."""

    model_config = STRICT

    workload: str = Field(description="what is trained: r2gen, or a function as package.module:function")
    baseline: dict[str, Setting] = Field(
        description="the settings that you run today; every result is stated relative to them"
    )
    knobs: dict[str, Distribution | ScaledLearningRate] = Field(
        min_length=1, description="the settings that may change, and the values that each may have"
    )
    limits: Limits = Field(Limits(), description="limits on every trial but the baseline")
    objective: Objective = Field(Objective(), description="what wins")
    budget: Budget = Field(Budget(), description="what the search may spend")
    unit: str = Field(
        "samples",
        pattern=r"^[A-Za-z][A-Za-z0-9_]{0,31}$",
        description="what work is counted in: the figure of a record that says how much was trained so far, "
        "such as tokens",
    )

    @field_validator("baseline", mode="before")
    @classmethod
    def _numbers(cls, value: Any) -> Any:
        return {k: as_number(v) for k, v in value.items()} if isinstance(value, dict) else value

    @field_validator("knobs", mode="before")
    @classmethod
    def _by_form(cls, value: Any) -> Any:
        """Each knob as the class that its form names, so that a mistake is explained by that class alone."""
        if not isinstance(value, dict):
            return value
        return {name: read_knob(name, spec) for name, spec in value.items()}

    def effective_batch_size(self, config: Config) -> int:
        """Samples per optimizer step under `config`; settings that it lacks are the baseline's."""
        return effective_batch(self.settings(config))

    def settings(self, config: Config) -> dict[str, Setting]:
        """Every setting of a run: the baseline's, overridden by `config`."""
        return {**self.baseline, **config}

    @property
    def known(self) -> Knowledge:
        """What is known of settings, those included that are the workload's own."""
        return workloads.known_settings(self.workload)

    @property
    def micro_batch_sizes(self) -> list[int]:
        """The micro-batches to choose from, ascending; empty where they are no choice."""
        knob = self.knobs.get(MICRO_BATCH)
        choice = knob.drawn_from.choice if knob else None
        return sorted(size for size in choice or () if isinstance(size, int))

    @property
    def baseline_config(self) -> dict[str, Setting]:
        return {name: self.baseline[name] for name in self.knobs}

    def learning_rate(self, config: Config, multiplier: float) -> float:
        ratio = self.effective_batch_size(config) / self.effective_batch_size({})
        return float(self.baseline[LEARNING_RATE] or 0) * math.sqrt(ratio) * multiplier

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
        if MICRO_BATCH not in self.baseline:
            return None
        size = self.effective_batch_size(config)
        return None if low <= size <= high else f"effective batch {size} is outside [{low}, {high}]"


def parse(text: str, source: str) -> Space:
    """The search space in YAML `text`; raises InputError with every mistake, naming `source`."""
    return from_values(read(text, source), source)


def read(text: str, source: str) -> dict[str, Any]:
    """The mapping in YAML `text`; raises InputError where it is none."""
    return mapping(text, f"search space {source}")


def mapping(text: str, what: str) -> dict[str, Any]:
    """The mapping in YAML `text`; raises InputError that says what is wrong with `what`."""
    try:
        values = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:  # told without the line itself: it may hold a password
        at = error.problem_mark or error.context_mark
        where = f" in line {at.line + 1}, column {at.column + 1}" if at else ""
        raise InputError(f"{what}: not YAML: {error.problem or error.context}{where}") from None
    except Exception as error:  # noqa: BLE001 - PyYAML lets pass what int, datetime and deep nesting raise
        raise InputError(f"{what}: not YAML: {type(error).__name__}") from None
    if not isinstance(values, dict):
        raise InputError(f"{what}: must be a mapping, got {type(values).__name__}")
    return values


def from_values(values: Mapping[str, Any], source: str) -> Space:
    """The search space in `values`; raises InputError with every mistake, naming `source`."""
    try:
        space = Space.model_validate(dict(values))
        json.dumps(to_values(space), ensure_ascii=False).encode()
    except ValidationError as error:
        raise InputError(f"search space {source}: {'; '.join(mistakes(error, Space))}") from None
    except UnicodeEncodeError:  # half of a pair, which YAML can name
        raise InputError(f"search space {source}: must be text that UTF-8 can hold") from None
    return space


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
    mistakes = [
        f"knob {n}: the baseline must say its value{instead(n, space.baseline)}"
        for n in space.knobs
        if n not in space.baseline
    ]
    mistakes += _not_numbers(space)
    knobs: dict[str, Distribution | ScaledLearningRate] = {}
    for name, knob in space.knobs.items():
        knobs[name] = knob
        if isinstance(knob, ScaledLearningRate):
            if name != LEARNING_RATE:
                mistakes.append(f"{name}: scale: sqrt is the rule of {LEARNING_RATE} alone")
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
    """What the tuner itself computes with, where it is no number: batches, loaders, the learning rate."""
    found = []
    for name, (low, high) in space.known.whole.items():
        knob = space.knobs.get(name)
        values = (knob.choice or knob.bounds) if isinstance(knob, Distribution) else ()
        given = [*values, *([space.baseline[name]] if name in space.baseline else [])]
        wrong = [v for v in given if not _is_whole(v, low, high)]
        found += [f"{name}: whole numbers of {low} to {high}: got {units.shown(wrong[0])}"] if wrong else []
    rate = space.baseline.get(LEARNING_RATE)
    scaled = isinstance(space.knobs.get(LEARNING_RATE), ScaledLearningRate)
    if scaled and not _RATES[0] <= (units.number(rate) or 0.0) <= _RATES[1]:
        found.append(f"baseline {LEARNING_RATE}: a number above 0, to be scaled: got {units.shown(rate)}")
    return found


def _is_whole(value: Setting, low: int, high: int) -> bool:
    if value is None:
        return low == 0  # nothing said: the trainer's own
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _with(values: tuple[Setting, ...], value: Setting) -> tuple[Setting, ...]:
    everything = (*values, value)
    numeric = all(isinstance(v, int | float) and not isinstance(v, bool) for v in everything)
    return tuple(sorted(everything, key=_number)) if numeric else everything


def _number(value: Setting) -> int | float:
    """A number as it is: a whole one may be too large for a float, and is refused elsewhere."""
    return value if isinstance(value, int | float) else 0


def _unreachable(space: Space) -> list[str]:
    """The limit on the effective batch, where no combination of knobs can meet it."""
    if MICRO_BATCH not in space.baseline:
        return []
    micro, accumulation = _values(space, MICRO_BATCH), _values(space, ACCUMULATION)
    low, high = space.limits.effective_batch_size
    if any(_has_between(micro, -(-low // steps), high // steps) for steps in accumulation):
        return []
    ends = f"{min(micro) * min(accumulation)} to {max(micro) * max(accumulation)}"
    return [f"limits.effective_batch_size [{low}, {high}] allows none of the sizes, {ends}"]


def _has_between(values: Sequence[int], low: int, high: int) -> bool:
    """Whether one of `values` is from `low` to `high`; a range may have billions of them."""
    if isinstance(values, range):
        return max(values[0], low) <= min(values[-1], high)
    return any(low <= value <= high for value in values)


def _values(space: Space, name: str) -> Sequence[int]:
    knob = space.knobs.get(name)
    if isinstance(knob, Distribution):
        if knob.choice:
            return [int(v) for v in knob.choice if v is not None]
        if knob.randint:
            return range(knob.randint[0], knob.randint[1] + 1)
    return [int(space.baseline.get(name) or 1)]
