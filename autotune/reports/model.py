"""The nouns of a report: every figure that it shows, as frozen values. Their JSON is `report --format json`.

Seconds, bytes, joules and samples, or the search's other unit of work, per second, never formatted text:
wording and rounding are the page's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from autotune.compare.steps import Steps
from autotune.compare.verdict import Verdict
from autotune.core.measurement import Evaluation
from autotune.core.settings import Config
from autotune.display import words
from autotune.display.rows import TrialRow
from autotune.judging.accounts.costs import Cost, Prices
from autotune.judging.decisions import quality as qualities
from autotune.judging.measurement.estimates import Figure
from autotune.workloads.own_section import OwnSection

if TYPE_CHECKING:  # which import numpy, and every command this module
    from autotune.judging.accounts.memory_forecast import MemoryForecast
    from autotune.judging.decisions.ablation import Step

FORMATS = ("html", "json", "md")
SAMPLES = 5  # test studies that are shown by default


@dataclass(frozen=True)
class Side:
    """The figures of the baseline or of the recommended configuration, over all its runs.

    `quality` has its interval over the `seeds` that it was run with; `throughput` is that of its `runs`, or
    the baseline's times what a race has shown. `joules_per_sample` are all that the GPU used while it ran,
    its start and evaluations included. `full_training_s` is the whole training at that throughput, about;
    None where its length is not known. `evaluation_share` of it goes to evaluations, None where it is not
    known how often there is one, and `pause_share` to long steps at regular distances. `memory_is_rising`
    says that the peak still grew when one of the runs ended: a longer training takes more. `mfu` is the share
    of the device's peak FLOP/s that all operations use, the HFU; None where either is not known.
    """

    trial: int
    config: Config
    knobs: str
    throughput: Figure | None
    runs: int
    quality: Figure | None
    seeds: int
    scores: Mapping[str, float]
    peak_memory_bytes: int | None
    memory_is_rising: bool
    memory_share: float | None
    gpu_percent: float | None
    cpu_percent: float | None
    joules_per_sample: float | None
    full_training_s: float | None
    step_s: Mapping[str, float]  # seconds of a step by phase: data, transfer, forward, backward, optimizer
    evaluation_share: float | None = None
    pause_share: float = 0.0
    mfu: float | None = None
    cost: Cost | None = None  # of the whole training
    planned: int | None = None  # samples of its training; None if trainings end at a target


@dataclass(frozen=True)
class Answer:
    """The answer. `verdict` is confirmed, unconfirmed, baseline (nothing better) or none (no baseline).

    Where nothing is better, `best` is the baseline itself. `factor` is the gain over the baseline, and
    `speed` what of it is throughput: to a target the rest is samples. It is by `rounds` of a race where it is
    confirmed. `promise` says what a winner means. `cautions` are what makes figures less than they seem,
    `outside` says what is spent outside of the steps, `commands` what to run next. The full training is
    projected with its evaluations where they are `counted`: where it is known how often there is one.
    """

    verdict: str
    sentence: str
    baseline: Side | None = None
    best: Side | None = None
    factor: Figure | None = None
    speed: Figure | None = None
    rounds: int = 0
    is_open: bool = False  # `best` seems better, and its confirmation is not done: it is not recommended
    promise: str = ""
    full_training_samples: int | None = None
    cautions: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    evaluations_counted: bool = False
    prices: Prices | None = None  # where they were given


@dataclass(frozen=True)
class Predicted:
    """Peak memory by micro-batch as the model predicts it, for the best's other settings and a precision."""

    precision: str
    micro_batch_size: tuple[int, ...]
    peak_bytes: tuple[float, ...]
    low_bytes: tuple[float, ...]
    high_bytes: tuple[float, ...]


@dataclass(frozen=True)
class Compared:
    """The models of a label of `compare`: the baseline's, or the winner's in a precision.

    Throughput, scores and reports per second are means over the `seeds` that were trained to their end; the
    rest is of the first one of them. `beside_fp32` is how much higher its training loss has ended than the
    same training's in fp32.
    """

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
    seeds: int = 1
    steps: Steps = field(default_factory=Steps)
    beside_fp32: float | None = None
    checkpoint_bytes: int | None = None
    parameters: int | None = None


@dataclass(frozen=True)
class Skipped:
    """Suggestions that were not started, for one reason: how often, and the time that saved, about.

    `reason` has its figures taken out, `example` is one of the reasons in full.
    """

    reason: str
    count: int
    saved_s: float
    example: str


@dataclass(frozen=True)
class Report:
    """All of a session. Qualities are in the user's own sign: where one is to `minimize`, lower is better.

    Work is counted in the `unit`, and is called samples here whatever that is. A winner keeps a share of
    `keep` of the baseline's quality, or all but an absolute slack that it is `within`.
    """

    session: str
    created: str
    state: str  # running, interrupted, ended
    quality: str  # the metric's name
    keep: float | None
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
    ablation: tuple["Step", ...]
    compared: tuple[Compared, ...]
    skipped: tuple[Skipped, ...]
    provenance: Mapping[str, Any] = field(default_factory=dict)
    minimize: bool = False
    within: float | None = None
    unit: str = "samples"
    constraints: Mapping[str, str] = field(default_factory=dict)
    speed: str = "throughput"  # or wall: with evaluations
    by_precision: bool = True  # whether that is a setting, so that models can be compared by it
    writes_reports: bool = True  # whether the workload has a program that models are scored with
    elsewhere: "MemoryForecast | None" = None  # of what is recommended; None before there is anything
    which_precision: Verdict | None = None  # which of the compared models to take
    own: OwnSection | None = None  # what the workload shows of the compared models
    going_on: str = ""  # the command that runs more of the search, where it does not run and can

    @property
    def limit(self) -> str:
        """`95% of what the baseline gains in BLEU-4`, or the target: the worst that a winner has."""
        name = words.metric(self.quality)
        if self.target is not None:
            return f"the target {name} {self.target:g}"
        return qualities.limit(name, self.keep, self.within, minimize=self.minimize)

    @property
    def no_worse(self) -> str:
        """`at least 95% of what the baseline gains in BLEU-4`, `at most 0.02 above the ...`."""
        if self.target is None and self.within is None and not self.keep:
            return self.limit
        is_above = self.minimize and (self.target is not None or self.within is not None)
        return f"{'at most' if is_above else 'at least'} {self.limit}"

    @property
    def axis(self) -> str:
        """`BLEU-4`; `val_loss, lower is better`."""
        return words.metric(self.quality) + (", lower is better" if self.minimize else "")

    @property
    def each(self) -> str:
        """One of the unit of work: `sample`, `token`."""
        return self.unit.removesuffix("s")
