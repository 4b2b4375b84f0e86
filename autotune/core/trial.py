"""The nouns of a search: outcome and trial. Frozen, without I/O."""

from dataclasses import dataclass, field
from enum import StrEnum

from autotune.core.measurement import Measurement
from autotune.core.settings import Config


class Status(StrEnum):
    """The end of a trial. `completed` trials alone can win; an `interrupted` one continues when resumed."""

    COMPLETED = "completed"
    STOPPED = "stopped"
    FAILED = "failed"
    INTERRUPTED = "interrupted"  # by something that is not its fault: a full disk, a kill (`lost`)


class TrialKind(StrEnum):
    """The purpose of a trial. Only a searched one can win, and is counted."""

    SEARCHED = "searched"  # one of the configurations that are searched among
    PILOT = "pilot"  # the baseline once more, which shows early how far equal runs lie apart
    SEED = "seed"  # a run of a finalist, or of the baseline, with a seed of its own
    RACE = "race"  # compares the speeds of the settings of several trials
    STEP = "step"  # of an ablation: shows what a single knob has brought


class Failure(StrEnum):
    """The reason why a trial failed."""

    OOM = "oom"
    ERROR = "error"
    DIVERGED = "diverged"
    TIMEOUT = "timeout"
    LOST = "lost"


class StoppedFor(StrEnum):
    """The reason why a trial could no longer win, so that it was stopped early."""

    SLOW = "slow"  # another that qualifies is faster with confidence
    POOR = "poor"  # the quality that must be kept is out of reach
    DOMINATED = "dominated"  # another on the front is faster with confidence, and its quality is out of reach
    LATE = "late"  # another has been at the target sooner


class Shortage(StrEnum):
    """The memory that ran out, if it is not the trial's own process's alone."""

    MACHINE = "machine"  # or what a process shares with its loader's workers
    KILLED_WORKER = "killed worker"  # a loader's: for memory, or from outside


@dataclass(frozen=True)
class Outcome:
    """The verdict on a trial: its status, and the kind of failure if it failed.

    `shortage` says of an out-of-memory that it concerns more than the trial's own process, `is_passing` of an
    error that another attempt need not meet it. `stopped_for` says why the search stopped it.
    `reason` is a line for people: nothing is decided by it.
    """

    status: Status
    failure: Failure | None = None
    reason: str = ""
    shortage: Shortage | None = None
    is_passing: bool = False
    stopped_for: StoppedFor | None = None

    def __str__(self) -> str:
        return f"{self.status} ({self.failure})" if self.failure else str(self.status)

    def leaves_work(self, *, keep: bool) -> bool:
        """Returns True if the directory of the workload stays: if interrupted, or completed and to `keep`."""
        return self.status is Status.INTERRUPTED or (keep and self.status is Status.COMPLETED)


@dataclass(frozen=True)
class Repeat:
    """The repetition of a trial, with another seed in every round."""

    of: int
    round: int


@dataclass(frozen=True)
class Trial:
    """One configuration tried. `outcome` is None while it runs, or waits to be run again after a kill.

    One that repeats another has its `config`, and a seed of its round's. A `race` compares the speeds of the
    trials that it names, and has the `config` of the first. A step of the ablation of the winner, trial
    `ablation_of`, shows what single knobs have brought. `kind` says which of these a trial is.
    """

    number: int
    config: Config
    outcome: Outcome | None = None
    measurement: Measurement = field(default_factory=Measurement)
    seconds: float = 0.0
    repeat: Repeat | None = None
    ablation_of: int | None = None
    race: tuple[int, ...] = ()

    @property
    def kind(self) -> TrialKind:
        if self.race:
            return TrialKind.RACE
        if self.ablation_of is not None:
            return TrialKind.STEP
        if self.repeat is None:
            return TrialKind.SEARCHED
        return TrialKind.SEED if self.repeat.round else TrialKind.PILOT

    @property
    def runs_alone(self) -> bool:
        """Returns True if nothing else may run alongside it."""
        return self.kind not in (TrialKind.SEARCHED, TrialKind.PILOT)

    @property
    def seed(self) -> int:
        """Returns which seed it runs with, 0 for the settings' own: every round of repeats has another."""
        return self.repeat.round + 1 if self.repeat else 0

    @property
    def original(self) -> int:
        """Returns the number of the trial that it repeats, or else its own."""
        return self.repeat.of if self.repeat else self.number

    @property
    def references(self) -> set[int]:
        """Returns the numbers of the trials that it repeats, races or explains."""
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
        """True if nothing was wrong with it, so that its figures are its settings'."""
        return self.completed or self.stopped

    @property
    def out_of_memory(self) -> bool:
        return self.outcome is not None and self.outcome.failure is Failure.OOM
