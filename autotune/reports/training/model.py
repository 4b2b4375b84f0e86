"""The nouns of a training's report. Their JSON is `report --format json` of its directory.

As in a session's report, figures are unrounded, in seconds, bytes, and samples or another unit of work.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from autotune.core.measurement import Measurement, Slope
from autotune.core.metric import Metric
from autotune.core.settings import Setting
from autotune.core.trial import Outcome
from autotune.judging.accounts.promise import PromiseAnswer, PromiseCheck
from autotune.judging.measurement.trends import Full
from autotune.reports.curves import CurveEvent, CurvePoint


@dataclass(frozen=True)
class Promised:
    """The session's promise for the settings of one of its trials, and whether it has held so far."""

    session: str
    trial: int
    answer: PromiseAnswer  # over all of `kept`
    kept: tuple[PromiseCheck, ...]  # one for each promised figure


@dataclass(frozen=True)
class Curves:
    """Curves of the training, thinned for plotting."""

    loss: tuple[CurvePoint, ...] = ()
    quality: tuple[CurvePoint, ...] = ()  # every evaluation, in the user's sign
    speed: tuple[CurvePoint, ...] = ()  # samples per second of steps, without evaluations
    beside: Mapping[str, tuple[CurvePoint, ...]] = field(default_factory=dict)  # other figures of records
    machine: Mapping[str, tuple[CurvePoint, ...]] = field(default_factory=dict)  # telemetry
    phases_s: Mapping[str, tuple[CurvePoint, ...]] = field(default_factory=dict)  # per sample, by phase


@dataclass(frozen=True)
class Growth:
    """The growth rate of one kind of memory in the last process of a training."""

    memory: str
    slope: Slope  # bytes per sample
    full: Full | None  # samples at which the memory is full; None if unknown or uncertain


@dataclass(frozen=True)
class TrainingReport:
    """A training, running or over."""

    directory: str
    state: str  # running, interrupted, ended
    workload: str
    device: str
    begun: float | None  # seconds since 1970
    metric: Metric
    planned: int | None  # samples of the whole training; None if only the workload knows
    outcome: Outcome | None  # None while it runs or may be resumed
    promised: Promised | None
    measured: Measurement  # higher quality is better; its speed may count evaluations, unlike the curve's
    seconds: float  # over all attempts
    attempts: int
    repeated: int  # samples trained again after a fault, approximately
    work_bytes: int | None  # checkpoints, and everything else that the workload keeps with them
    curves: Curves
    growth: tuple[Growth, ...]
    events: tuple[CurveEvent, ...]
    settings: Mapping[str, Setting]  # in use now
    changes: Mapping[str, Setting]  # those that recovery has changed
