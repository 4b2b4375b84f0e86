"""The metric of a training, and the figures of a trial: throughput, evaluations, memory. Frozen, pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

# The phases of a step: keys of a record, in seconds.
PHASES = ("data_s", "transfer_s", "forward_s", "backward_s", "optimizer_s")
_THROTTLED_SHARE = 0.05
_OTHERS_SHARE = 0.05  # of the CPUs or the GPU: a machine's own housekeeping takes less


@dataclass(frozen=True)
class Metric:
    """Names and units of a training's records. Their values have the workload's sign, not the tuner's."""

    name: str  # key of the quality in a record, which marks it as an evaluation
    minimize: bool = False  # lower is better
    unit: str = "samples"  # key under which records count their samples
    counts_evaluations: bool = False  # evaluations are part of the speed
    samples_per_evaluation: int | None = None  # in the user's own training; None: as in the trial

    def turned(self, value: float) -> float:
        """Converts a quality between the user's sign and the tuner's sign."""
        return turned(value, minimize=self.minimize)


def turned(value: float, *, minimize: bool) -> float:
    """Negates `value` if lower is better, so that higher is better; converts in both directions."""
    return 0.0 - value if minimize else value  # -value would show -0.0000


@dataclass(frozen=True)
class Throughput:
    """Training samples per second in the steady state; evaluations count only if the objective says so."""

    samples_per_s: float
    half_width_per_s: float | None  # half the 95% confidence interval; None after too few steps
    steps: int  # measured, after the warm-up
    seconds: float  # that those steps took

    @property
    def steps_per_s(self) -> float:
        """Optimizer steps per second, without evaluations."""
        return self.steps / self.seconds


@dataclass(frozen=True)
class Outside:
    """The time that a trial spends outside its steps."""

    evaluations: int = 0
    evaluation_s: float | None = None  # mean time of one, with its checkpoint; None if none was seen
    half_width_s: float | None = None  # half the 95% interval of `evaluation_s`; None after too few
    pauses: float = 0.0  # share of the steps' time lost to regular long steps: checkpoints, logging


@dataclass(frozen=True)
class Slope:
    """The growth of a figure per sample trained."""

    per_sample: float
    low: float  # ends of the 95% interval
    high: float
    is_slowing: bool = False  # growth was clearly slower at the end: do not extrapolate


@dataclass(frozen=True)
class Schedule:
    """The learning rate of a training; `last` equals `peak` if it stays constant after its warm-up."""

    peak: float
    last: float
    moved: int  # samples after which it changed for the last time

    @property
    def falls(self) -> bool:
        return self.last < self.peak


@dataclass(frozen=True)
class Evaluation:
    """A point of a trial's curve: the quality after a number of samples."""

    samples: int
    seconds: float  # of training until then
    quality: float
    chance: float | None = None  # quality of a model that ignores its input; None if the workload gives none
    collapsed: bool = False  # the workload saw the model ignore its input: the quality is worthless


@dataclass(frozen=True)
class Slice:
    """One member's turn in a round of a race: the complete steps in it."""

    number: int  # the trial whose settings ran
    round: int  # from 1; every round has one turn of each member
    samples: int
    seconds: float
    steps: int
    outside_s: float = 0.0  # seconds that evaluations add, from the member's trial: a race has none
    unsure: float = 0.0  # relative error of the speed that those seconds may cause
    launch: int = 1  # from 1: in each, all members run in new processes

    @property
    def samples_per_s(self) -> float:
        return self.samples / (self.seconds + self.outside_s)


@dataclass(frozen=True)
class Measurement:
    """The figures of a trial; None if they are not known."""

    throughput: Throughput | None = None
    quality: float | None = None  # of the last evaluation
    quality_samples: int = 0  # trained by then
    curve: tuple[Evaluation, ...] = ()
    items: tuple[float, ...] = ()  # a score for each item of the last evaluation; their mean is the quality
    slices: tuple[Slice, ...] = ()  # of a race, which measures nothing else
    outside: Outside = Outside()
    samples: int = 0  # trained in all
    peak_memory_bytes: int | None = None  # of tensors on a GPU, else of all its processes; decides what fits
    own_peak_bytes: int | None = None  # the same for the training process alone
    peak_reserved_bytes: int | None = None  # held by the GPU's allocator, its cache included
    context_bytes: int | None = None  # GPU memory of the process besides its tensors
    memory_limit_bytes: int | None = None  # allowed to the trial
    memory_cap_bytes: int | None = None  # enforced by the GPU's allocator
    memory_is_rising: bool = False  # the peak still grew at the end: a longer training takes more
    memory_slope: Slope | None = None  # in bytes
    flops_per_sample: Mapping[str, float] = field(default_factory=dict)  # by number format
    mfu: float | None = None  # share of the device's peak FLOP/s; HFU, as recomputed operations count
    trained_parameters: int | None = None  # without frozen ones
    shared: bool = False  # other trials ran alongside it
    device: str = ""
    node: str = ""  # of a cluster
    revision: str = ""  # of the code
    scores: Mapping[str, float] = field(default_factory=dict)  # other figures of the last evaluation
    start: float | None = None  # quality before the first step
    ended: bool = False  # by itself: it was a whole training
    resumed: bool = False  # after an interruption
    schedule: Schedule | None = None  # of the learning rate
    step_shares: Mapping[str, float] = field(default_factory=dict)  # share of a step's time by phase
    telemetry: Mapping[str, float] = field(default_factory=dict)

    @property
    def origin(self) -> tuple[str, str]:
        """Device and code revision: figures of different origins are never compared."""
        return self.device, self.revision

    @property
    def throttled(self) -> bool:
        """True if heat or power slowed the GPU down for more than 5% of the time."""
        return self.telemetry.get("gpu_throttled", 0.0) > _THROTTLED_SHARE

    @property
    def others(self) -> dict[str, float]:
        return others_shares(self.telemetry)

    @property
    def disturbed(self) -> bool:
        """True if other programs used the same CPUs or GPU, and so distorted the figures."""
        return bool(self.others)


def others_shares(telemetry: Mapping[str, float]) -> dict[str, float]:
    """Returns the shares of the `CPUs` and the `GPU` that other programs use, if over 5%."""
    parts = {
        "CPUs": telemetry.get("others_cpu_percent", 0.0) / 100 / (telemetry.get("allowed_cpus") or 1.0),
        "GPU": telemetry.get("others_gpu_percent", 0.0) / 100,
    }
    return {what: part for what, part in parts.items() if part > _OTHERS_SHARE}
