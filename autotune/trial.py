"""The nouns of a search: configuration, measurement, outcome, trial. Frozen, without I/O."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Self

Setting = str | bool | int | float | None
Config = Mapping[str, Setting]


class Status(StrEnum):
    """How a trial ended. `completed` trials alone can win; an `interrupted` one goes on when resumed."""

    COMPLETED = "completed"
    STOPPED = "stopped"
    FAILED = "failed"
    SKIPPED = "skipped"  # suggested, and known not to be worth starting
    INTERRUPTED = "interrupted"  # by something that is not its fault: a full disk


class Failure(StrEnum):
    """Why a trial failed."""

    OOM = "oom"
    ERROR = "error"
    DIVERGED = "diverged"
    TIMEOUT = "timeout"
    LOST = "lost"


@dataclass(frozen=True)
class Outcome:
    """The verdict on a trial: its status, the kind of failure if it failed, and one line that says why."""

    status: Status
    failure: Failure | None = None
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.status} ({self.failure})" if self.failure else str(self.status)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        failure = values.get("failure")
        return cls(Status(values["status"]), Failure(failure) if failure else None, values.get("reason", ""))


@dataclass(frozen=True)
class Throughput:
    """Training samples per second in the steady state, evaluation excluded.

    `half_width_per_s` is half the 95% confidence interval, None where there were too few steps to tell;
    `steps` and `seconds` are what was measured after the warm-up.
    """

    samples_per_s: float
    half_width_per_s: float | None
    steps: int
    seconds: float


@dataclass(frozen=True)
class Measurement:
    """What a trial showed. Memory is in bytes; `step_shares` says what part of a step each phase took."""

    throughput: Throughput | None = None
    quality: float | None = None
    quality_samples: int = 0
    samples: int = 0
    peak_memory_bytes: int | None = None
    memory_limit_bytes: int | None = None
    shared: bool = False
    scores: Mapping[str, float] = field(default_factory=dict)
    step_shares: Mapping[str, float] = field(default_factory=dict)
    telemetry: Mapping[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        throughput = values.get("throughput")
        return cls(**{**values, "throughput": Throughput(**throughput) if throughput else None})


@dataclass(frozen=True)
class Trial:
    """One configuration tried. `outcome` is None while it runs, or waits to be run again after a kill."""

    number: int
    config: Config
    outcome: Outcome | None = None
    measurement: Measurement = field(default_factory=Measurement)
    seconds: float = 0.0

    @property
    def samples_per_s(self) -> float | None:
        return self.measurement.throughput.samples_per_s if self.measurement.throughput else None

    @property
    def quality(self) -> float | None:
        return self.measurement.quality

    @property
    def completed(self) -> bool:
        return self.outcome is not None and self.outcome.status is Status.COMPLETED

    @property
    def out_of_memory(self) -> bool:
        return self.outcome is not None and self.outcome.failure is Failure.OOM
