"""The nouns of a report: every figure that it shows, as frozen values. Their JSON is `report --format json`.

Figures are unrounded, in seconds, bytes, joules, and samples or the search's own unit of work.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from autotune.compare.results import StepSummary
from autotune.compare.verdict import ComparisonVerdict
from autotune.core.measurement import Evaluation
from autotune.core.settings import Config
from autotune.display import events, words
from autotune.display.rows import TrialRow
from autotune.judging.accounts.costs import Cost, Prices
from autotune.judging.decisions import quality as qualities
from autotune.judging.measurement.estimates import Figure
from autotune.workloads.base import OwnSection

if TYPE_CHECKING:  # every command imports this module, and these import numpy
    from autotune.judging.accounts.memory_forecast import MemoryForecast
    from autotune.judging.decisions.ablation import AblationStep

FORMAT = 1  # of the JSON
FORMATS = ("html", "json", "md")
SAMPLES = 5  # test studies shown by default


@dataclass(frozen=True)
class Side:
    """The figures of the baseline or the recommended configuration, over all its runs."""

    trial: int
    config: Config
    knobs: str
    throughput: Figure | None  # mean of its `runs`, or the baseline's times the factor of a race
    runs: int
    quality: Figure | None  # mean over `seeds`, with its interval
    seeds: int
    scores: Mapping[str, float]
    peak_memory_bytes: int | None
    memory_is_rising: bool  # the peak still grew when a run ended: a longer training takes more
    memory_share: float | None
    gpu_percent: float | None
    cpu_percent: float | None
    joules_per_sample: float | None  # of the GPU, start and evaluations included
    full_training_s: float | None  # estimated; None if the length is unknown
    step_s: Mapping[str, float]  # seconds of a step by phase: data, transfer, forward, backward, optimizer
    evaluation_share: float | None = None  # of the full training; None if their frequency is unknown
    pause_share: float = 0.0  # of the full training: long steps at regular distances
    mfu: float | None = None  # HFU: share of the device's peak FLOP/s that all operations use
    cost: Cost | None = None  # of the full training
    planned: int | None = None  # samples of its training; None if trainings end at a target
    run_s: float | None = None  # of a run from start to end, median; None if trials are not whole trainings


@dataclass(frozen=True)
class Answer:
    """The recommendation, and how it compares with the baseline."""

    verdict: str  # confirmed, unconfirmed, baseline (nothing better) or none (no baseline)
    sentence: str
    baseline: Side | None = None
    best: Side | None = None  # the baseline itself if nothing is better
    factor: Figure | None = None  # gain over the baseline
    speed: Figure | None = None  # the part of `factor` that is throughput; the rest is fewer samples
    rounds: int = 0  # of the race that confirmed it
    is_open: bool = False  # `best` seems better, but is not confirmed yet, and so not recommended
    promise: str = ""  # the meaning of a winner
    full_training_samples: int | None = None
    cautions: tuple[str, ...] = ()  # reasons to trust figures less
    commands: tuple[str, ...] = ()  # to run next
    outside: tuple[str, ...] = ()  # time spent outside the steps
    evaluations_counted: bool = False  # the full training includes its evaluations
    prices: Prices | None = None


@dataclass(frozen=True)
class Predicted:
    """Predicted peak memory by micro-batch in one precision, other settings as in the best trial."""

    precision: str
    micro_batch_size: tuple[int, ...]
    peak_bytes: tuple[float, ...]
    low_bytes: tuple[float, ...]
    high_bytes: tuple[float, ...]


@dataclass(frozen=True)
class Compared:
    """The models of one label of `compare`: the baseline's, or the winner's in one precision."""

    # Throughput, scores and reports per second are means over the `seeds`, all else is the first model's.
    label: str
    config: Config
    status: str
    reason: str
    trial: int | None
    samples: int
    throughput: Figure | None
    training_peak_bytes: int | None
    training_memory_is_rising: bool
    scores: Mapping[str, float]
    reports_per_s: float | None
    writing_peak_bytes: int | None
    curve: tuple[Evaluation, ...]
    seeds: int = 1  # that have completed
    steps: StepSummary = field(default_factory=StepSummary)
    beside_fp32: float | None = None  # excess of the final training loss over fp32: 0.01 is 1% higher
    checkpoint_bytes: int | None = None
    parameters: int | None = None


@dataclass(frozen=True)
class Skipped:
    """Suggestions that were rejected for one reason."""

    reason: str  # without its figures
    count: int
    example: str  # one of the reasons with its figures


@dataclass(frozen=True)
class SessionReport:
    """A session. Qualities have the user's sign, and `samples` are counted in the user's `unit`."""

    session: str
    created: str
    state: str  # running, interrupted, ended
    quality: str  # the metric's name
    keep: float | None  # share of the baseline's gain in quality that a winner keeps
    select: str
    target: float | None
    memory_fraction: float
    memory_limit_bytes: int | None
    samples_per_trial: int
    planned: int
    seconds: float  # of search so far
    answer: Answer
    least_quality: float | None
    trials: tuple[TrialRow, ...]
    predicted: tuple[Predicted, ...]
    ablation: tuple["AblationStep", ...]
    compared: tuple[Compared, ...]
    skipped: tuple[Skipped, ...]
    provenance: Mapping[str, Any] = field(default_factory=dict)
    minimize: bool = False  # a lower quality is better
    within: float | None = None  # absolute slack in quality, instead of `keep`
    unit: str = "samples"
    constraints: Mapping[str, str] = field(default_factory=dict)
    speed: str = "throughput"  # or wall: with evaluations
    by_precision: bool = True  # precision is a setting, so models can be compared by it
    writes_reports: bool = True  # the workload has a program that scores models
    elsewhere: "MemoryForecast | None" = None  # of the recommendation; None if there is none
    which_precision: ComparisonVerdict | None = None  # which of the compared models to take
    own: OwnSection | None = None  # the workload's section about the compared models
    going_on: str = ""  # command that continues the search; empty if it runs or cannot continue

    def to_json(self) -> str:
        """Returns the report as strict JSON; NaN and infinities become null."""
        return events.line({"format": FORMAT, **vars(self)}, indent=2) + "\n"

    @property
    def limit(self) -> str:
        """The lowest quality of a winner: `95% of the baseline's improvement in ...`, or a target."""
        name = words.metric(self.quality)
        if self.target is not None:
            return f"the target {name} {self.target:g}"
        return qualities.format_limit(name, self.keep, self.within, minimize=self.minimize)

    @property
    def no_worse(self) -> str:
        """E.g. `at least 95% of the baseline's improvement in ...`, `at most 0.02 above the ...`."""
        if self.target is None and self.within is None and not self.keep:
            return self.limit
        is_above = self.minimize and (self.target is not None or self.within is not None)
        return f"{'at most' if is_above else 'at least'} {self.limit}"

    @property
    def axis(self) -> str:
        """An axis title: `BLEU-4`; `val_loss, lower is better`."""
        return words.metric(self.quality) + (", lower is better" if self.minimize else "")

    @property
    def each(self) -> str:
        """The unit of work in the singular: `sample`, `token`."""
        return self.unit.removesuffix("s")
