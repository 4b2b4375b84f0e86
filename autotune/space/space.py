"""The search space as declared, with everything that follows from the declaration alone."""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from autotune.core.measurement import Metric
from autotune.core.settings import (
    ACCUMULATION,
    LEARNING_RATE,
    LENGTH,
    MICRO_BATCH,
    Config,
    Key,
    Knowledge,
    KnownSetting,
    Setting,
    effective_batch,
    settings_key,
)
from autotune.space.knobs import (
    Distribution,
    Drawn,
    KeptBatch,
    Knob,
    PlannedLength,
    ScaledLearningRate,
    SpacePart,
    as_number,
    read_knob,
)
from autotune.space.naming import Naming, text_of
from autotune.space.sections import Budget, Limits, Objective, Training
from autotune.workloads import registry


class Space(SpacePart):
    """A search space: the baseline run today, the knobs to try, the objective and the budget."""

    workload: str | dict[str, Any] = Field(
        description="what is trained: r2gen, a function as package.module:function, or a mapping with a kind"
    )
    roles: dict[str, str] = Field(
        {},
        description="your settings by their role for the tuner, such as {micro_batch_size: data.batch_size}",
    )
    values: dict[str, dict[Annotated[str, BeforeValidator(text_of)], Any]] = Field(
        {}, description="your words for the tuner's values, such as {precision: {fp16: 16-mixed}}"
    )
    baseline: dict[str, Setting] = Field(
        description="the settings that you run today, under your names and in your shape; every result is "
        "compared with theirs",
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

    @field_validator("baseline", mode="before")
    @classmethod
    def _as_ours(cls, value: Any, info: ValidationInfo) -> Any:
        if not isinstance(value, dict):
            return value
        return {k: as_number(v) for k, v in _naming(info.data).named(value).items()}

    @field_validator("knobs", mode="before")
    @classmethod
    def _by_form(cls, value: Any, info: ValidationInfo) -> Any:
        """Reads each knob as the class that its keys select, so that errors are about that class alone."""
        if not isinstance(value, dict):
            return value
        naming, knobs = _naming(info.data), {}
        for path, spec in value.items():
            name, knob = naming.name(path), read_knob(path, spec)
            if isinstance(knob, PlannedLength):
                knob = knob.renamed(naming.name)
            elif isinstance(knob, Distribution) and knob.choice:
                choice = tuple(naming.value(name, word) for word in knob.choice)
                knob = knob.model_copy(update={"choice": choice})
            knobs[name] = knob
        return knobs

    @field_validator("counted_in_steps", "follow_learning_rate", "evaluate_every", mode="after")
    @classmethod
    def _names(
        cls, value: tuple[str, ...] | str | None, info: ValidationInfo
    ) -> tuple[str, ...] | str | None:
        name = _naming(info.data).name
        return tuple(map(name, value)) if isinstance(value, tuple) else value and name(value)

    def revised(self, **sections: Mapping[str, object]) -> Self:
        """Returns the space with fields of its sections changed: `revised(budget={"trials": 3})`."""
        changes = {name: getattr(self, name).model_copy(update=values) for name, values in sections.items()}
        return self.model_copy(update=changes)

    def effective_batch_size(self, config: Config) -> int:
        """Returns the samples per optimizer step under `config`, completed with the baseline."""
        return effective_batch(self.settings(config))

    def settings(self, config: Config) -> dict[str, Setting]:
        """Returns every setting of a run: the baseline's settings, overridden by `config`."""
        return {**self.baseline, **config}

    @property
    def naming(self) -> Naming:
        return Naming(self.roles, self.values)

    @property
    def metric(self) -> Metric:
        return self.metric_of({})

    def metric_of(self, config: Config) -> Metric:
        """Returns the metric of the records of `config`, whose settings may set how often it is evaluated."""
        goal = self.objective
        return Metric(
            name=goal.quality,
            minimize=goal.minimize is not None,
            unit=self.unit,
            counts_evaluations=goal.counts_evaluations,
            samples_per_evaluation=self.samples_per_evaluation(config),
        )

    def samples(self, config: Config, otherwise: int | None = None) -> int:
        """Returns the samples of a trial of `config`: planned, else `otherwise`, else the budget's."""
        planned = config.get(LENGTH) if LENGTH in self.knobs else None
        return int(planned or otherwise or self.budget.samples_per_trial)

    @property
    def interval_setting(self) -> str | None:
        """The tuner's name of the setting for the evaluation interval; None if there is none."""
        return self.evaluate_every or registry.cadence(registry.label(self.workload)).setting

    def samples_per_evaluation(self, config: Config) -> int | None:
        """Returns the work between two evaluations of the user's training with `config`; None if unknown."""
        settings, interval = self.settings(config), None
        if self.evaluate_every is not None:  # in steps of the baseline's batch, whatever `config` has
            steps = settings.get(self.evaluate_every)
            interval = steps * self.effective_batch_size({}) if isinstance(steps, int) else None
        elif self.unit == "samples":  # the workload's own setting applies to the batch of `config`
            cadence = registry.cadence(registry.label(self.workload))
            interval = cadence.samples(settings, self.training.samples_per_epoch)
        return interval or self.training.samples_per_evaluation

    @property
    def known(self) -> Knowledge:
        """Knowledge of common settings, the workload's own, and those declared with `moves`."""
        knobs = {name: knob for name, knob in self.knobs.items() if isinstance(knob, Distribution)}
        declared = tuple((name, knob.moves) for name, knob in knobs.items() if knob.moves is not None)
        workload = registry.label(self.workload)
        return _knowledge(workload, declared) if declared else registry.known_settings(workload)

    def speed_key(self, config: Config) -> Key:
        """Returns a key that is the same for configurations of equal speed."""
        return settings_key(config, self.known.same_speed)

    @property
    def drawn_knobs(self) -> dict[str, Drawn]:
        """Knobs that are searched: those that do not follow others."""
        drawn = Distribution | ScaledLearningRate
        return {name: knob for name, knob in self.knobs.items() if isinstance(knob, drawn)}

    def whole_values(self, name: str) -> Sequence[int]:
        """Returns the whole numbers that a setting can have, ascending: its knob's, or the baseline's."""
        knob = self.knobs.get(name)
        if not isinstance(knob, Distribution):
            return [int(self.baseline.get(name) or 1)]
        if knob.randint:
            return range(knob.randint[0], knob.randint[1] + 1)
        return sorted(int(value or 1) for value in knob.choice or knob.bounds)

    @property
    def micro_batch_sizes(self) -> list[int]:
        """Micro-batch sizes to choose from, ascending; empty if the knob is no choice."""
        knob = self.drawn_knobs.get(MICRO_BATCH)
        choice = knob.drawn_from.choice if knob else None
        return sorted(size for size in choice or () if isinstance(size, int))

    @property
    def keeps_batch(self) -> bool:
        """True if the accumulation follows the micro-batch to keep the baseline's effective batch."""
        return isinstance(self.knobs.get(ACCUMULATION), KeptBatch)

    @property
    def baseline_config(self) -> dict[str, Setting]:
        own = {name: self.baseline[name] for name in self.knobs if name != LENGTH}
        return own if LENGTH not in self.knobs else {**own, LENGTH: self.budget.samples_per_trial}

    def learning_rate(self, config: Config, multiplier: float) -> float:
        ratio = self.effective_batch_size(config) / self.effective_batch_size({})
        return float(self.baseline[LEARNING_RATE] or 0) * math.sqrt(ratio) * multiplier

    def violation(self, config: Config) -> str | None:
        """Returns the reason that `config` is outside the limits, None if inside; the baseline is exempt."""
        low, high = self.limits.effective_batch_size
        if MICRO_BATCH not in self.baseline:
            return None
        size, kept = self.effective_batch_size(config), self.effective_batch_size({})
        if self.keeps_batch and size != kept:
            return f"effective batch {size} is not the baseline's {kept}, which is kept"
        return None if low <= size <= high else f"effective batch {size} is outside [{low}, {high}]"


@cache
def _knowledge(workload: str, declared: tuple[tuple[str, tuple[str, ...]], ...]) -> Knowledge:
    """Returns the knowledge of a workload's settings, with the user's `moves` declarations."""
    return registry.known_settings(workload).with_own(KnownSetting.declared(*one) for one in declared)


def _naming(read: Mapping[str, Any]) -> Naming:
    """Returns the naming from the fields validated so far."""
    return Naming(read.get("roles", {}), read.get("values", {}))
