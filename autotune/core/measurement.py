"""The figures of a trial: throughput, evaluations, memory. Frozen, without I/O."""

from collections.abc import Mapping
from dataclasses import dataclass, field

# The phases of a step, by the names under which records have their seconds.
PHASES = ("data_s", "transfer_s", "forward_s", "backward_s", "optimizer_s")
_THROTTLED_SHARE = 0.05
_OTHERS_SHARE = 0.05  # of the CPUs or of the GPU: a machine's own housekeeping takes less


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
        return others_shares(self.telemetry)

    @property
    def disturbed(self) -> bool:
        """True if others used what it was measured on, so that its figures are partly theirs."""
        return bool(self.others)


def others_shares(telemetry: Mapping[str, float]) -> dict[str, float]:
    """Returns the part of the `CPUs` and of the `GPU` that others use, if it is more than a twentieth."""
    parts = {
        "CPUs": telemetry.get("others_cpu_percent", 0.0) / 100 / (telemetry.get("allowed_cpus") or 1.0),
        "GPU": telemetry.get("others_gpu_percent", 0.0) / 100,
    }
    return {what: part for what, part in parts.items() if part > _OTHERS_SHARE}
