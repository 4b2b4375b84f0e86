"""The nouns of a search: measurement, outcome, trial. Frozen, without I/O."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Self

from autotune.core.settings import Config

# The phases of a step, by the names under which records have their seconds.
PHASES = ("data_s", "transfer_s", "forward_s", "backward_s", "optimizer_s")
_THROTTLED_SHARE = 0.05
_OTHERS_SHARE = 0.05  # of the CPUs or of the GPU: a machine's own housekeeping takes less


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

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        failure, shortage = values.get("failure"), values.get("shortage")
        stopped_for = values.get("stopped_for")
        return cls(
            Status(values["status"]),
            Failure(failure) if failure else None,
            values.get("reason", ""),
            Shortage(shortage) if shortage else None,
            is_passing=values.get("is_passing") is True,
            stopped_for=StoppedFor(stopped_for) if stopped_for else None,
        )


@dataclass(frozen=True)
class Throughput:
    """Training samples per second in the steady state, evaluation excluded, unless it is asked for.

    `half_width_per_s` is half the 95% confidence interval, None where there were too few steps to tell;
    `steps` and `seconds` are what was measured after the warm-up.
    """

    samples_per_s: float
    half_width_per_s: float | None
    steps: int
    seconds: float

    @property
    def steps_per_s(self) -> float:
        """Optimizer steps per second of training alone."""
        return self.steps / self.seconds


@dataclass(frozen=True)
class Outside:
    """The time that a trial has spent outside of its steps.

    Of its `evaluations` one takes `evaluation_s` seconds, with a checkpoint that comes with it; None where
    that was not seen. `half_width_s` is half the 95% interval, None where there were too few to tell.
    `pauses` is the share of the steps' time that long steps took at regular distances: with checkpoints, or
    with logging.
    """

    evaluations: int = 0
    evaluation_s: float | None = None
    half_width_s: float | None = None
    pauses: float = 0.0


@dataclass(frozen=True)
class Slope:
    """The growth of a figure with the work done: `per_sample`, from `low` to `high` at 95%.

    `is_slowing` says that it grew clearly less towards the end of what was seen: it is settling, and is not
    to be drawn on as a line.
    """

    per_sample: float
    low: float
    high: float
    is_slowing: bool = False


@dataclass(frozen=True)
class Schedule:
    """The learning rate of a training: the `peak`, and the `last` one, which came after `moved` samples.

    A constant one has its peak last, after its warm-up.
    """

    peak: float
    last: float
    moved: int

    @property
    def falls(self) -> bool:
        return self.last < self.peak


@dataclass(frozen=True)
class Evaluation:
    """A point of a trial's curve: the quality after so many samples, which took `seconds` of training.

    `chance` is what a model reaches there that ignores its input, None where the workload does not say.
    `collapsed` says that the workload has seen the model do so: its quality is no quality then.
    """

    samples: int
    seconds: float
    quality: float
    chance: float | None = None
    collapsed: bool = False


@dataclass(frozen=True)
class Slice:
    """A turn of one trial's settings in a race: the whole steps that lay in it, and what they took.

    `number` is the trial whose settings ran, `round` counts from 1; every round has one of each member.
    Nothing is evaluated in a race: where evaluations are part of the speed, `outside_s` is what they add, as
    measured in the trial, and `unsure` the part of the speed that this may be wrong by.
    """

    number: int
    round: int
    samples: int
    seconds: float
    steps: int
    outside_s: float = 0.0
    unsure: float = 0.0

    @property
    def samples_per_s(self) -> float:
        return self.samples / (self.seconds + self.outside_s)


@dataclass(frozen=True)
class Measurement:
    """The figures of a trial. Memory is in bytes; `step_shares` says what part of a step each phase took.

    `peak_memory_bytes` is what decides whether a trial fits: what the process and its descendants held, on a
    GPU what its tensors took; `own_peak_bytes` is that of the process that trains alone. On a GPU
    `peak_reserved_bytes` is what its allocator held, with what it had only cached, and `context_bytes` what
    the process took besides. It was allowed `memory_limit_bytes`, and its allocator was refused more than
    `memory_cap_bytes`, where it was capped. `shared` says that other trials ran alongside it, `device` and
    `revision` on what and of which code it was measured: only figures alike in these compare.

    `start` is the quality before the first step, None if it was not evaluated. It `ended` by itself if its
    workload did: then it was a whole training.

    `schedule` is that of the learning rate, None if it is not known. `items` are numbers, one for each thing
    that was scored, whose mean is the quality at the trial's end: so two trials can be compared thing by
    thing. `memory_is_rising` says that the peak was still growing when
    the trial ended, so that a longer training takes more; `memory_slope` is by how many bytes steps raise it,
    None where there were too few. `flops_per_sample` are the floating-point operations of a sample's part of
    a step, by the kind of their numbers, where they could be counted; `mfu` is the share of the device's peak
    that they are run at, where that is known: the HFU, as what a checkpoint computes again counts. The
    `trained_parameters` are those that its optimizer trains: not those of a frozen part. Of a race, `slices`
    are all that was measured.
    """

    throughput: Throughput | None = None
    quality: float | None = None
    quality_samples: int = 0
    curve: tuple[Evaluation, ...] = ()
    items: tuple[float, ...] = ()
    slices: tuple[Slice, ...] = ()
    outside: Outside = Outside()
    samples: int = 0
    peak_memory_bytes: int | None = None
    own_peak_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    context_bytes: int | None = None
    memory_limit_bytes: int | None = None
    memory_cap_bytes: int | None = None
    memory_is_rising: bool = False
    memory_slope: Slope | None = None
    flops_per_sample: Mapping[str, float] = field(default_factory=dict)
    mfu: float | None = None
    trained_parameters: int | None = None
    shared: bool = False
    device: str = ""
    revision: str = ""
    scores: Mapping[str, float] = field(default_factory=dict)
    start: float | None = None
    ended: bool = False
    schedule: Schedule | None = None
    step_shares: Mapping[str, float] = field(default_factory=dict)
    telemetry: Mapping[str, float] = field(default_factory=dict)

    @property
    def origin(self) -> tuple[str, str]:
        """On what it was measured, and of which code: figures of different origins are never compared."""
        return self.device, self.revision

    @property
    def throttled(self) -> bool:
        """True if the GPU was slowed down for its heat or its power for more than a twentieth of the time."""
        return self.telemetry.get("gpu_throttled", 0.0) > _THROTTLED_SHARE

    @property
    def others(self) -> dict[str, float]:
        """The part of the `CPUs` and of the `GPU` that others kept busy, if it was more than a twentieth."""
        seen = self.telemetry
        parts = {
            "CPUs": seen.get("others_cpu_percent", 0.0) / 100 / seen.get("allowed_cpus", 1.0),
            "GPU": seen.get("others_gpu_percent", 0.0) / 100,
        }
        return {what: part for what, part in parts.items() if part > _OTHERS_SHARE}

    @property
    def disturbed(self) -> bool:
        """True if others used what it was measured on, so that its figures are partly theirs."""
        return bool(self.others)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        throughput, slope = values.get("throughput"), values.get("memory_slope")
        schedule = values.get("schedule")
        curve = tuple(Evaluation(**point) for point in values.get("curve", ()))
        read = {
            "throughput": Throughput(**throughput) if throughput else None,
            "curve": curve,
            "items": tuple(values.get("items", ())),
            "slices": tuple(Slice(**one) for one in values.get("slices", ())),
            "outside": Outside(**values.get("outside", {})),
            "memory_slope": Slope(**slope) if slope else None,
            "schedule": Schedule(**schedule) if schedule else None,
        }
        return cls(**{**values, **read})


@dataclass(frozen=True)
class Repeat:
    """The repetition of trial `of`, in a round in which every one of `members` is run once."""

    of: int
    round: int
    members: tuple[int, ...]


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
        repeated = {self.repeat.of, *self.repeat.members} if self.repeat else set()
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
