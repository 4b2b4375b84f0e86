"""The sections of a search space beside its knobs: limits, objective, budget."""

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from autotune import units
from autotune.errors import InputError
from autotune.knobs import LARGEST_INT, STRICT

# What the sampler and the arithmetic carry.
LARGEST_BATCH, MOST_ACCUMULATED = 2**30, 2**20
MOST_COUNTED = 10**6


class Limits(BaseModel):
    """What no trial but the baseline may be outside of."""

    model_config = STRICT

    effective_batch_size: tuple[int, int] = Field(
        (1, 1 << 30), description="[smallest, largest] of micro_batch_size * accumulation_steps, in samples"
    )
    memory_fraction: float = Field(
        0.85,
        gt=0,
        le=1,
        description="what needs more than this share of a trial's memory at its peak is not recommended",
    )

    @field_validator("effective_batch_size")
    @classmethod
    def _ordered(cls, value: tuple[int, int]) -> tuple[int, int]:
        if not 1 <= value[0] <= value[1] <= LARGEST_BATCH * MOST_ACCUMULATED:
            raise ValueError(
                f"[smallest, largest] with 1 <= smallest <= largest: got {units.shown(list(value))}"
            )
        return value


Select = Literal["fastest", "pareto", "time-to-quality"]


class Objective(BaseModel):
    """What wins: the fastest that keeps the quality, or who reaches the quality `target` first.

    `pareto` looks for the whole front of speed and quality; of it, the fastest that keeps the quality wins.
    """

    model_config = STRICT | ConfigDict(
        json_schema_extra={
            "if": {"properties": {"select": {"const": "time-to-quality"}}, "required": ["select"]},
            "then": {"properties": {"target": {"type": "number"}}, "required": ["target"]},
            "else": {"properties": {"target": {"type": "null"}}},
        }
    )

    speed: Literal["throughput"] = Field("throughput", description="training samples per second")
    quality: str = Field(
        "bleu_4", description="the figure of an evaluation's record that is to be kept; more is better"
    )
    keep: float = Field(
        0.95, ge=0, le=1, description="share of the baseline's quality that a winner keeps; 0: any quality"
    )
    select: Select = Field(
        "fastest",
        description="what wins: the fastest that keeps the quality (pareto: it, too, and the whole front is "
        "searched and shown), or the first to reach the target",
    )
    target: float | None = Field(
        None, description="the quality to reach; with select: time-to-quality, and only with it"
    )

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
    """What the search may spend."""

    model_config = STRICT

    trials: int = Field(40, ge=1, le=MOST_COUNTED, description="configurations to try, repeats not counted")
    samples_per_trial: int = Field(
        20000, ge=1, le=LARGEST_INT, description="training samples of a trial that nothing stops"
    )
    evaluations_per_trial: int = Field(
        4, ge=1, le=MOST_COUNTED, description="how often quality is evaluated, evenly over the samples"
    )
    finalists: int = Field(
        3, ge=1, le=MOST_COUNTED, description="trials that may be repeated against the baseline"
    )
    repeats: int = Field(
        3,
        ge=0,
        le=MOST_COUNTED,
        description="runs of each finalist and the baseline, 3 or more; 0: nothing is confirmed",
        json_schema_extra={"not": {"enum": list(range(1, _FEWEST_REPEATS))}},
    )
    time: float | None = Field(
        None,
        description="time limit of the search: seconds, or a duration such as 90m or 2h; none: no limit",
        json_schema_extra={
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0},
                {"type": "string", "pattern": units.DURATION_PATTERN},
                {"type": "null"},
            ]
        },
    )

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
