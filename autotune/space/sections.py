"""Sections of a search space other than knobs: limits, objective, training, budget."""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, field_validator, model_validator

from autotune.core import units
from autotune.core.errors import InputError
from autotune.core.measurement import turned
from autotune.core.settings import LARGEST_BATCH, LARGEST_INT, MOST_ACCUMULATED, MOST_COUNTED
from autotune.space.knobs import SpacePart

_Samples = Annotated[int, Field(ge=1, le=LARGEST_INT)]
_Count = Annotated[int, Field(ge=1, le=MOST_COUNTED)]


class Limits(SpacePart):
    """Limits on every trial except the baseline."""

    effective_batch_size: tuple[int, int] = Field(
        (1, 1 << 30), description="[smallest, largest] of micro_batch_size * accumulation_steps, in samples"
    )
    memory_fraction: float = Field(
        0.85,
        gt=0,
        le=1,
        description="largest share of its memory limit that a recommended configuration may use at its peak; "
        "on a GPU the cap of every trial but the baseline",
    )

    @field_validator("effective_batch_size")
    @classmethod
    def _ordered(cls, value: tuple[int, int]) -> tuple[int, int]:
        if not 1 <= value[0] <= value[1] <= LARGEST_BATCH * MOST_ACCUMULATED:
            raise ValueError(
                f"[smallest, largest] with 1 <= smallest <= largest, got {units.quote(list(value))}"
            )
        return value


PROMISES = ("same-quality", "same-training")
_KEEP, _KEEP_OF_LOSS = 0.95, 0.99
_CONSTRAINT = re.compile(r"\s*(>=|<=)\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*")


class Objective(SpacePart):
    """The criterion for the winner, and the promise that comes with it.

    `same-quality` promises a shorter training that ends no worse: it compares whole trainings, each planned
    to its own end, or with a `target` the time to reach it. `same-training` promises the same training, only
    faster: it changes nothing that the result depends on. `pareto` is `same-quality`, with a search for the
    whole front of speed and quality.
    """

    speed: Literal["throughput", "wall"] = Field(
        "throughput",
        description="what counts as speed: units of work per second of training alone (throughput), or with "
        "evaluations as often as in the whole training (wall)",
    )
    quality: str = Field(
        "bleu_4", description="name of the quality in an evaluation's record; higher is better"
    )
    minimize: str | None = Field(
        None, description="name of a quality of which lower is better, such as a loss; instead of `quality`"
    )
    keep: float | None = Field(
        None,
        ge=0,
        le=1,
        description="share that a winner keeps of the baseline's improvement, from chance or the first "
        f"evaluation to the end; 0: any quality. None: {_KEEP}, or {_KEEP_OF_LOSS} with minimize",
    )
    within: float | None = Field(
        None,
        ge=0,
        allow_inf_nan=False,
        description="how much worse than the baseline's a winner's quality may be, in its own units; "
        "instead of `keep`",
    )
    select: Literal["same-quality", "same-training", "pareto"] = Field(
        "same-quality",
        description="what wins: the shortest training that ends with the baseline's quality (same-quality), "
        "the fastest that trains as the baseline does (same-training), or all best trade-offs between speed "
        "and quality (pareto)",
    )
    target: float | None = Field(
        None,
        description="a quality to reach in the least time, with select: same-quality; none: whole trainings "
        "are compared by their final quality",
    )
    constraints: dict[str, str] = Field(
        {},
        description='conditions on other figures of the last evaluation, such as ">= 0.5"',
        json_schema_extra={"additionalProperties": {"type": "string", "pattern": f"^{_CONSTRAINT.pattern}$"}},
    )

    @model_validator(mode="before")
    @classmethod
    def _one_of_each(cls, values: Any) -> Any:
        """Copies `minimize` to `quality`, takes `maximize` as its alias, and drops `keep` for `within`."""
        if not isinstance(values, dict):
            return values
        if "maximize" in values and "quality" not in values:
            values = {"quality" if name == "maximize" else name: value for name, value in values.items()}
        given = {name: value for name, value in values.items() if value is not None}
        name = given.get("minimize")
        for one, other in (("quality", "minimize"), ("keep", "within")):
            if {one, other} <= given.keys() and (one == "keep" or given[one] != given[other]):
                got, and_got = units.quote(given[one]), units.quote(given[other])
                raise ValueError(f"one of {one} and {other}, got {one} {got} and {other} {and_got}")
        named = {"quality": name} if isinstance(name, str) else {}
        usual = _KEEP if name is None else _KEEP_OF_LOSS
        return values | named | {"keep": None if "within" in given else given.get("keep", usual)}

    @field_validator("constraints")
    @classmethod
    def _are_comparisons(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            if comparison(text) is None:
                raise ValueError(f'{name}: ">= number" or "<= number", got {units.quote(text)}')
        return value

    @model_validator(mode="after")
    def _target_where_it_counts(self) -> Self:
        if self.target is not None and self.select != "same-quality":
            raise ValueError(
                f"a target needs select: same-quality, got select {self.select!r} and target {self.target!r}"
            )
        return self

    def turned(self, value: float) -> float:
        """Converts a quality between the user's sign and the tuner's, in which higher is better."""
        return turned(value, minimize=self.minimize is not None)

    @property
    def aim(self) -> float | None:
        """Target in the tuner's sign: higher is better."""
        return None if self.target is None else self.turned(self.target)

    @property
    def counts_evaluations(self) -> bool:
        return self.speed == "wall"

    @property
    def takes_any_quality(self) -> bool:
        return self.within is None and not self.keep

    @property
    def asks_for_speed_alone(self) -> bool:
        """True if quality decides nothing, so that a trial may end once its speed is known."""
        is_free = self.select == "same-training" or (
            self.select == "same-quality" and self.target is None and self.takes_any_quality
        )
        return is_free and not self.constraints


def comparison(text: str) -> tuple[str, float] | None:
    """Returns operator and bound of a constraint such as `>= 0.5`, None if it is not one."""
    match = _CONSTRAINT.fullmatch(text)
    return (match[1], float(match[2])) if match else None


class Training(SpacePart):
    """Facts about the user's whole training, of which a trial is a part."""

    samples: _Samples | None = Field(
        None, description="its samples, or other unit of work; none: what the workload says"
    )
    samples_per_epoch: _Samples | None = Field(
        None, description="samples of an epoch, if a setting counts epochs; none: what the workload says"
    )
    samples_per_evaluation: _Samples | None = Field(
        None, description="samples between two of its evaluations, if no setting says so; none: not known"
    )


_FEWEST_REPEATS = 3


def _seconds(value: Any) -> float | None:
    try:
        return None if value is None else units.seconds(value)
    except InputError as error:
        raise ValueError(str(error)) from None


_TEXT = {"type": "string", "pattern": units.DURATION_PATTERN}
_Seconds = Annotated[
    float | None,
    BeforeValidator(_seconds),
    WithJsonSchema({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, _TEXT, {"type": "null"}]}),
]


class Budget(SpacePart):
    """Limits on what the search may spend."""

    trials: _Count = Field(40, description="configurations to try, repeats not counted")
    samples_per_trial: _Samples = Field(
        20000,
        description="training samples, or the space's other unit of work, of a trial that is not stopped "
        "early",
    )
    until_learnt: bool = Field(
        False,
        description="samples_per_trial is the maximum: the baseline ends as soon as its quality is clearly "
        "above chance, and every other trial gets as many samples as it had then",
    )
    evaluations_per_trial: _Count = Field(
        4, description="evaluations of quality, spread evenly over the samples"
    )
    finalists: _Count = Field(3, description="most trials to confirm against the baseline")
    repeats: int = Field(
        6,
        ge=0,
        le=MOST_COUNTED,
        description="most seeds of the winner and of the baseline, 3 or more; 0: confirm nothing",
    )
    time: _Seconds = Field(
        None, description="time limit of the search: seconds, or a duration such as 90m or 2h; none: no limit"
    )
    worth: _Seconds = Field(
        None,
        description="time that the trainings to come would take as they are, as for time: the search ends "
        "once another trial would probably cost more than it saves of that; none: it goes on",
    )

    @field_validator("repeats")
    @classmethod
    def _enough_or_none(cls, value: int) -> int:
        if 0 < value < _FEWEST_REPEATS:
            raise ValueError(f"0, or at least {_FEWEST_REPEATS}, for an interval, got {value}")
        return value
