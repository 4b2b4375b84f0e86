"""The nouns of a search: trials, their outcomes, and rejected suggestions. Frozen, without I/O."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, TypeVar

from autotune.core.measurement import Measurement
from autotune.core.settings import Config, Key, settings_key

_T = TypeVar("_T")


class Status(StrEnum):
    """The end of a trial. Only a `completed` one can win; an `interrupted` one continues on resume."""

    COMPLETED = "completed"
    STOPPED = "stopped"
    FAILED = "failed"
    INTERRUPTED = "interrupted"  # not its own fault: a full disk, or killed (`lost`)


class TrialKind(StrEnum):
    """The purpose of a trial. Only searched ones can win, and count against the budget."""

    SEARCHED = "searched"  # tries a configuration
    PILOT = "pilot"  # repeats the baseline early, to show how much equal runs differ
    SEED = "seed"  # repeats a finalist or the baseline with another seed
    RACE = "race"  # compares the speeds of several trials' settings side by side
    STEP = "step"  # of an ablation: measures the effect of one knob


class Failure(StrEnum):
    OOM = "oom"
    ERROR = "error"
    DIVERGED = "diverged"
    TIMEOUT = "timeout"
    LOST = "lost"


class StoppedFor(StrEnum):
    """The reason that a trial could no longer win and was stopped early."""

    SLOW = "slow"  # another eligible trial is certainly faster
    POOR = "poor"  # the required quality is out of reach
    DOMINATED = "dominated"  # a trial on the front is certainly faster, and its quality out of reach
    LATE = "late"  # another reached the target sooner


class Shortage(StrEnum):
    """The memory that ran out, if it was not only the memory of the trial's own process."""

    MACHINE = "machine"  # or the memory that a process shares with its loader's workers
    KILLED_WORKER = "killed worker"  # a loader worker was killed: for memory, or from outside


@dataclass(frozen=True)
class Outcome:
    status: Status
    failure: Failure | None = None  # if it failed
    reason: str = ""  # a line for people; no decision depends on it
    shortage: Shortage | None = None  # if more than the trial's own process ran out of memory
    is_passing: bool = False  # a transient error: another attempt may succeed
    stopped_for: StoppedFor | None = None  # if the search stopped it

    def __str__(self) -> str:
        return f"{self.status} ({self.failure})" if self.failure else str(self.status)

    def leaves_work(self, *, keep: bool) -> bool:
        """Returns True if the workload's directory is kept: if interrupted, or with `keep` if completed."""
        return self.status is Status.INTERRUPTED or (keep and self.status is Status.COMPLETED)


@dataclass(frozen=True)
class Repeat:
    """Marks a repeat of trial `of`; every round has another seed."""

    of: int
    round: int


@dataclass(frozen=True)
class Trial:
    """One run of a configuration; `kind` tells its purpose."""

    number: int
    config: Config  # that of the repeated trial, or of the first one raced
    outcome: Outcome | None = None  # None while it runs, or waits to run again after a kill
    measurement: Measurement = field(default_factory=Measurement)
    seconds: float = 0.0
    repeat: Repeat | None = None  # the trial that it repeats
    ablation_of: int | None = None  # the winner whose knobs it measures one by one
    race: tuple[int, ...] = ()  # the trials whose speeds it compares

    @cached_property
    def kind(self) -> TrialKind:
        if self.race:
            return TrialKind.RACE
        if self.ablation_of is not None:
            return TrialKind.STEP
        if self.repeat is None:
            return TrialKind.SEARCHED
        return TrialKind.SEED if self.repeat.round else TrialKind.PILOT

    def key_without(self, names: frozenset[str]) -> Key:
        """Returns the `settings_key` of its configuration."""
        return self.cached(names, lambda: settings_key(self.config, names))

    def cached(self, key: Hashable, compute: Callable[[], _T]) -> _T:
        """Returns the value of `compute`, which is called once for each `key`."""
        if key not in self._cache:
            self._cache[key] = compute()
        value: _T = self._cache[key]
        return value

    @cached_property
    def _cache(self) -> dict[Hashable, Any]:
        return {}

    @property
    def runs_alone(self) -> bool:
        return self.kind in (TrialKind.RACE, TrialKind.STEP)  # the others are not judged by their speed

    @property
    def seed(self) -> int:
        """Index of the trial's seed: 0 for the seed in its settings, then one for each round of repeats."""
        return self.repeat.round + 1 if self.repeat else 0

    @property
    def original(self) -> int:
        return self.repeat.of if self.repeat else self.number

    @property
    def references(self) -> set[int]:
        """Numbers of the trials that it repeats, races or ablates."""
        repeated = {self.repeat.of} if self.repeat else set()
        explained = set() if self.ablation_of is None else {self.ablation_of}
        return {*repeated, *explained, *self.race}

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
    def stopped(self) -> bool:
        return self.outcome is not None and self.outcome.status is Status.STOPPED

    @property
    def ended_well(self) -> bool:
        """True if it completed or was stopped: its figures then describe its settings."""
        return self.completed or self.stopped

    @property
    def out_of_memory(self) -> bool:
        return self.outcome is not None and self.outcome.failure is Failure.OOM


class RejectedFor(StrEnum):
    LIMITS = "limits"  # outside the space's limits
    MEMORY = "memory"  # cannot fit
    SPEED = "speed"  # cannot win
    QUALITY = "quality"  # would lose it
    TRIED = "tried"


@dataclass(frozen=True)
class RejectedSuggestion:
    """A suggestion that was not worth starting; `reason` explains it in one line for people."""

    config: Config
    kind: RejectedFor
    reason: str
