"""The nouns of a training's report. Their JSON is `report --format json` of its directory.

As in a session's report figures are unrounded: seconds, bytes, and samples, or another unit of work.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from autotune.core.measurement import Measurement, Slope
from autotune.core.metric import Metric
from autotune.core.settings import Setting
from autotune.core.trial import Outcome
from autotune.judging.accounts.promise import Answer, Kept
from autotune.judging.measurement.trends import Full
from autotune.reports.curves import CurvePoint, Happened


@dataclass(frozen=True)
class Promised:
    """The trial whose settings these are, and whether what its session promised of them has held so far.

    `answer` is that of all that is `kept`, which has everything that was promised.
    """

    session: str
    trial: int
    answer: Answer
    kept: tuple[Kept, ...]


@dataclass(frozen=True)
class Curves:
    """Figures over the training, thinned out to what a plot can show; `quality` has every evaluation.

    It has the user's own sign, `speed` is samples per second of steps alone. `beside` has other figures of
    the records by their names, `machine` what was seen of the processes, the machine and its GPUs. `phases_s`
    has the seconds of a sample by the phase of its step.
    """

    loss: tuple[CurvePoint, ...] = ()
    quality: tuple[CurvePoint, ...] = ()
    speed: tuple[CurvePoint, ...] = ()
    beside: Mapping[str, tuple[CurvePoint, ...]] = field(default_factory=dict)
    machine: Mapping[str, tuple[CurvePoint, ...]] = field(default_factory=dict)
    phases_s: Mapping[str, tuple[CurvePoint, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Growth:
    """The growth of the use of a `memory` in the last process: a `slope` in bytes for each sample.

    At that rate it is `full` after so many samples in all; None where that is not certain, or not known.
    """

    memory: str
    slope: Slope
    full: Full | None


@dataclass(frozen=True)
class TrainingReport:
    """A training, running or over. `outcome` is None while it has none: while it runs, or may be resumed.

    It has run for `seconds` in so many `attempts`; `repeated` samples were trained more than once, about,
    because a fault came after the last checkpoint. `work_bytes` are those of its checkpoints, and of all
    else that the workload keeps next to them. `planned` samples are the whole training's, None where only its
    workload knows. `settings` are those that it runs with now, `changes` which of them it has changed itself.
    If the speed of `measured` counts evaluations, that of the curve does not. Qualities of `measured`
    have the tuner's sign: higher is better.
    """

    directory: str
    state: str  # running, interrupted, ended
    workload: str
    device: str
    begun: float | None
    metric: Metric
    planned: int | None
    outcome: Outcome | None
    promised: Promised | None
    measured: Measurement
    seconds: float
    attempts: int
    repeated: int
    work_bytes: int | None
    curves: Curves
    growth: tuple[Growth, ...]
    events: tuple[Happened, ...]
    settings: Mapping[str, Setting]
    changes: Mapping[str, Setting]
