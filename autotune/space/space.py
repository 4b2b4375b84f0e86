"""The search space, and its YAML."""

import itertools
import json
import math
import random
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import yaml
from pydantic import BaseModel, Field, ValidationError, ValidationInfo, field_validator

from autotune.core.errors import InputError, instead
from autotune.core.settings import (
    ACCUMULATION,
    LEARNING_RATE,
    LENGTH,
    MICRO_BATCH,
    Config,
    Knowledge,
    Known,
    Setting,
    effective_batch,
)
from autotune.space import checks, following, lengths, yaml_text
from autotune.space.knobs import (
    STRICT,
    Distribution,
    Drawn,
    Knob,
    PlannedLength,
    ScaledLearningRate,
    as_number,
    mistakes,
    read_knob,
)
from autotune.space.naming import Naming, text_of
from autotune.space.sections import Budget, Limits, Objective, Training
from autotune.workloads import registry

_MOST_LISTED = 20_000
_DRAWS = 500


class Space(BaseModel):
    """What may be tried, what is run today, and what the search may spend."""

    model_config = STRICT

    workload: str | dict[str, Any] = Field(
        description="what is trained: r2gen, a function as package.module:function, or a mapping with a kind"
    )
    roles: dict[str, str] = Field(
        {}, description="what your settings are to the tuner: micro_batch_size: data.batch_size"
    )
    values: dict[str, dict[str, Any]] = Field(
        {}, description="your words for the tuner's values: precision: {fp16: 16-mixed}"
    )
    baseline: dict[str, Setting] = Field(
        description="the settings that you run today, under your names and in your shape; every result is "
        "stated relative to them",
        json_schema_extra={"additionalProperties": True},
    )
    knobs: dict[str, Knob] = Field(
        min_length=1, description="the settings that may change, and the values that each may have"
    )
    counted_in_steps: tuple[str, ...] = Field(
        (),
        description="settings that count optimizer steps, such as max_iters; they change with the effective "
        "batch, so that they always span the same number of samples",
    )
    follow_learning_rate: tuple[str, ...] = Field(
        (), description="further learning rates, such as those of other parameters; they keep their ratio"
    )
    evaluate_every: str | None = Field(
        None,
        description="the setting that says after how many optimizer steps the training is evaluated; as a "
        "knob, it counts steps of the baseline's effective batch",
    )
    training: Training = Field(Training(), description="the whole training that the baseline is for")
    limits: Limits = Field(Limits(), description="limits on every trial but the baseline")
    objective: Objective = Field(Objective(), description="what wins")
    budget: Budget = Field(Budget(), description="how much the search may spend")
    unit: str = Field(
        "samples",
        pattern=r"^[A-Za-z][A-Za-z0-9_]{0,31}$",
        description="the unit of work: the figure of a record that says how much was trained so far, "
        "such as tokens",
    )

    @field_validator("values", mode="before")
    @classmethod
    def _by_text(cls, value: Any) -> Any:
        """Converts keys to text: a YAML key may be a number or a boolean."""
        if not isinstance(value, dict):
            return value
        return {
            name: {text_of(k): v for k, v in words.items()} if isinstance(words, dict) else words
            for name, words in value.items()
        }

    @field_validator("baseline", mode="before")
    @classmethod
    def _as_ours(cls, value: Any, info: ValidationInfo) -> Any:
        """Flattens the baseline, under the tuner's names."""
        if not isinstance(value, dict):
            return value
        return {k: as_number(v) for k, v in _naming(info.data).named(value).items()}

    @field_validator("knobs", mode="before")
    @classmethod
    def _by_form(cls, value: Any, info: ValidationInfo) -> Any:
        """Reads each knob as the class that its keys select, so that errors are about that class alone."""
        if not isinstance(value, dict):
            return value
        naming = _naming(info.data)
        read = {name: read_knob(name, spec) for name, spec in value.items()}
        return {
            naming.name(path): _in_our_words(knob, naming.name(path), naming) for path, knob in read.items()
        }

    @field_validator("counted_in_steps", "follow_learning_rate", mode="after")
    @classmethod
    def _names(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        return tuple(map(_naming(info.data).name, value))

    @field_validator("evaluate_every", mode="after")
    @classmethod
    def _name(cls, value: str | None, info: ValidationInfo) -> str | None:
        return value and _naming(info.data).name(value)

    def effective_batch_size(self, config: Config) -> int:
        """Returns the samples per optimizer step under `config`, completed with the baseline."""
        return effective_batch(self.settings(config))

    def settings(self, config: Config) -> dict[str, Setting]:
        """Returns every setting of a run: the baseline's, overridden by `config`."""
        return {**self.baseline, **config}

    @property
    def naming(self) -> Naming:
        """The translation to and from the user's settings."""
        return Naming(self.roles, self.values)

    def for_workload(self, settings: Config) -> dict[str, Any]:
        """Returns `settings` for the whole training, in the user's names, shape and words.

        Step counts are rescaled from the baseline's effective batch to that of `settings`, and the planned
        length from a trial to the whole training.
        """
        whole = lengths.settings(self, settings, is_whole=True)
        return self.naming.as_given({**following.settings(self, settings), **whole})

    def for_trial(self, settings: Config) -> dict[str, Any]:
        """Returns `settings` for a trial, with evaluations evenly spaced over its samples.

        The last one is not before the end: the trial would otherwise run until the next one.
        """
        given = {**following.settings(self, settings), **lengths.settings(self, settings)}
        if self.evaluate_every is not None:
            step = effective_batch(settings) * self.budget.evaluations_per_trial
            given[self.evaluate_every] = math.ceil(self.samples(settings) / step)
        return self.naming.as_given(given)

    def samples(self, config: Config) -> int:
        """Returns the samples of a trial of `config`."""
        planned = config.get(LENGTH) if LENGTH in self.knobs else None
        return int(planned or self.budget.samples_per_trial)

    @property
    def known(self) -> Knowledge:
        """Knowledge of common settings, the workload's own, and those declared with `moves`."""
        knobs = {name: knob for name, knob in self.knobs.items() if isinstance(knob, Distribution)}
        declared = tuple((name, knob.moves) for name, knob in knobs.items() if knob.moves is not None)
        workload = registry.label(self.workload)
        return _knowledge(workload, declared) if declared else registry.known_settings(workload)

    @property
    def drawn_knobs(self) -> dict[str, Drawn]:
        """Knobs that are searched: those that do not follow others."""
        drawn = Distribution | ScaledLearningRate
        return {name: knob for name, knob in self.knobs.items() if isinstance(knob, drawn)}

    @property
    def micro_batch_sizes(self) -> list[int]:
        """Micro-batch sizes to choose from, ascending; empty if the knob is no choice."""
        knob = self.drawn_knobs.get(MICRO_BATCH)
        choice = knob.drawn_from.choice if knob else None
        return sorted(size for size in choice or () if isinstance(size, int))

    @property
    def baseline_config(self) -> dict[str, Setting]:
        own = {name: self.baseline[name] for name in self.knobs if name != LENGTH}
        return own if LENGTH not in self.knobs else {**own, LENGTH: self.budget.samples_per_trial}

    def learning_rate(self, config: Config, multiplier: float) -> float:
        ratio = self.effective_batch_size(config) / self.effective_batch_size({})
        return float(self.baseline[LEARNING_RATE] or 0) * math.sqrt(ratio) * multiplier

    def config(self, drawn: Mapping[str, Setting]) -> dict[str, Setting]:
        """Returns the configuration for `drawn` values, with any scaled learning rate resolved."""
        config = {n: drawn[n] for n, knob in self.knobs.items() if isinstance(knob, Distribution)}
        if following.keeps_batch(self):
            config[ACCUMULATION] = following.accumulation(self, config)
        for name, knob in self.knobs.items():
            if isinstance(knob, ScaledLearningRate):
                rate = self.learning_rate(config, float(drawn[name] or 0))
                config[name] = float(f"{rate:.4g}")  # rounded as it is shown
        if LENGTH in self.knobs:
            config[LENGTH] = lengths.planned(self, config, self.budget.samples_per_trial)
        return {name: config[name] for name in self.knobs}

    def every(self) -> list[dict[str, Setting]] | None:
        """Returns all configurations within the limits; None if infinite, or over 20,000 combinations."""
        choices = [knob.drawn_from.choice for knob in self.drawn_knobs.values()]
        finite = [choice for choice in choices if choice is not None]
        if len(finite) < len(choices) or math.prod(map(len, finite)) > _MOST_LISTED:
            return None
        combinations = itertools.product(*finite)
        configs = [self.config(dict(zip(self.drawn_knobs, values, strict=True))) for values in combinations]
        return [config for config in configs if self.violation(config) is None]

    def neighbours(self, config: Config) -> list[dict[str, Setting]]:
        """Returns the configurations that differ from `config` by one step of one knob."""
        drawn = self.drawn(config)
        return [
            self.config({**drawn, name: value})
            for name, knob in self.drawn_knobs.items()
            for value in knob.drawn_from.beside(drawn[name])
        ]

    def shuffled(self, rng: random.Random) -> Iterator[dict[str, Setting]]:
        """Yields random configurations: a small finite space once, else 500 draws."""
        listed = self.every()
        if listed is not None:
            rng.shuffle(listed)
            yield from listed
            return
        for _ in range(_DRAWS):
            yield self.config({name: knob.drawn_from.draw(rng) for name, knob in self.drawn_knobs.items()})

    def drawn(self, config: Config) -> dict[str, Setting]:
        """Inverts `config`; approximately, as scaled learning rates are rounded."""
        return {n: self._drawn(config, n, knob) for n, knob in self.drawn_knobs.items()}

    def _drawn(self, config: Config, name: str, knob: Drawn) -> Setting:
        if isinstance(knob, Distribution):
            return config[name]
        multiplier = float(config[name] or 0) / self.learning_rate(config, 1.0)
        if knob.multiplier.choice:
            return min(knob.multiplier.choice, key=lambda value: abs(float(value or 0) - multiplier))
        low, high = knob.multiplier.bounds
        return min(max(multiplier, low), high)

    def contains(self, config: Config) -> bool:
        """Returns True if `config` has exactly the knobs, each with a valid value."""
        if config.keys() != self.knobs.keys():
            return False
        if following.keeps_batch(self) and config[ACCUMULATION] != following.accumulation(self, config):
            return False
        if LENGTH in self.knobs and not lengths.is_within(self, config):
            return False
        drawn = self.drawn(config)
        return all(knob.drawn_from.contains(drawn[name]) for name, knob in self.drawn_knobs.items())

    def violation(self, config: Config) -> str | None:
        """Returns the reason that `config` is outside the limits, None if inside; not for the baseline."""
        low, high = self.limits.effective_batch_size
        if MICRO_BATCH not in self.baseline:
            return None
        size, kept = self.effective_batch_size(config), self.effective_batch_size({})
        if following.keeps_batch(self) and size != kept:
            return f"effective batch {size} is not the baseline's {kept}, which is kept"
        return None if low <= size <= high else f"effective batch {size} is outside [{low}, {high}]"


@cache
def _knowledge(workload: str, declared: tuple[tuple[str, tuple[str, ...]], ...]) -> Knowledge:
    """Returns the knowledge of a workload's settings, with the user's `moves` declarations."""
    return registry.known_settings(workload).with_own(Known.said(*one) for one in declared)


def _naming(read: Mapping[str, Any]) -> Naming:
    """Returns the naming from the fields validated so far."""
    return Naming(read.get("roles", {}), read.get("values", {}))


def _in_our_words(knob: BaseModel, name: str, naming: Naming) -> BaseModel:
    """Returns the knob with the user's names and words replaced by the tuner's."""
    if isinstance(knob, PlannedLength):
        return knob.renamed(naming.name)
    if not isinstance(knob, Distribution) or not knob.choice:
        return knob
    return knob.model_copy(update={"choice": tuple(naming.value(name, value) for value in knob.choice)})


def _in_their_words(knob: Knob, naming: Naming) -> Knob:
    return knob.renamed(naming.path) if isinstance(knob, PlannedLength) else knob


def parse(text: str, source: str) -> Space:
    """Returns the search space in YAML `text`; raises InputError with every mistake, naming `source`."""
    return from_values(read(text, source), source)


def read(text: str, source: str) -> dict[str, Any]:
    """Returns the mapping in YAML `text`; raises InputError if it is not one."""
    return yaml_text.mapping(text, f"search space {source}")


def from_values(values: Mapping[str, Any], source: str) -> Space:
    """Returns the search space in `values`; raises InputError with every mistake, naming `source`."""
    try:
        space = Space.model_validate(registry.completed(values))
        json.dumps(to_values(space), ensure_ascii=False).encode()
    except ValidationError as error:
        raise InputError(f"search space {source}: {'; '.join(mistakes(error, Space))}") from None
    except UnicodeEncodeError:  # a lone surrogate, which YAML can escape
        raise InputError(f"search space {source}: must be text that UTF-8 can hold") from None
    return space


def dump(space: Space) -> str:
    """Returns `space` as YAML that `parse` reads back."""
    return yaml.safe_dump(to_values(space), sort_keys=False)


def to_values(space: Space) -> dict[str, Any]:
    """Returns `space` as plain values that `from_values` reads back."""
    values = space.model_dump(mode="json", exclude_none=False)
    naming = space.naming
    values["baseline"] = naming.shaped(space.baseline)
    values["knobs"] = {
        naming.path(name): _in_their_words(knob, naming).model_dump(
            mode="json", exclude_unset=True, exclude_none=True
        )
        for name, knob in space.knobs.items()
    }
    values["counted_in_steps"] = [naming.path(name) for name in space.counted_in_steps]
    values["follow_learning_rate"] = [naming.path(name) for name in space.follow_learning_rate]
    values["evaluate_every"] = space.evaluate_every and naming.path(space.evaluate_every)
    return values


def complete(space: Space, source: str) -> Space:
    """Returns `space` with the baseline's value in every choice, so that the search can start from it.

    Raises InputError, with every mistake in one line, if knobs and limits cannot be met.
    """
    mistakes = [
        f"knob {n}: the baseline must say its value{instead(n, space.baseline)}"
        for n in space.knobs
        if n not in space.baseline and n != LENGTH
    ]
    mistakes += lengths.mistakes(space)
    mistakes += checks.of_settings(space)
    knobs: dict[str, Knob] = dict(space.knobs)
    for name, knob in space.knobs.items():
        if not isinstance(knob, Distribution) or name not in space.baseline:
            continue
        if knob.choice and not knob.contains(space.baseline[name]):
            knobs[name] = knob.including(space.baseline[name])
        elif not knob.contains(space.baseline[name]):
            mistakes.append(f"knob {name}: must contain the baseline's {space.baseline[name]!r}")
    whole = space.model_copy(update={"knobs": knobs})
    whole = whole if mistakes else lengths.completed(whole)
    mistakes += [] if mistakes else checks.of_limits(whole)
    if mistakes:
        raise InputError(f"search space {source}: {'; '.join(mistakes)}")
    return whole
