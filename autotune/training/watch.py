"""Watches a training: its status, changes of speed, growing memory, and halved batches. No I/O."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

from autotune.core import units
from autotune.core.measurement import PHASES, Measurement, Metric
from autotune.core.record_names import TRAIN_LOSS
from autotune.core.settings import ACCUMULATION, MICRO_BATCH, Setting
from autotune.display import view, words
from autotune.judging.measurement import drift, trends
from autotune.judging.measurement.drift import Window
from autotune.judging.measurement.trends import Point, Series
from autotune.storage.records import forget_from, is_break
from autotune.training.events import Kind
from autotune.training.plan import TrainingPlan
from autotune.trials.progress import Phase
from autotune.trials.report import TrialReport

_WINDOW_S = 10.0
_RECENT = 30  # windows
_LARGEST = 1e30  # beyond it, a quality is no figure
_AS_LONG_AGAIN = 3  # assumed rest of a training of unknown length, in multiples of the samples so far
# The telemetry that says how many bytes of a memory the training uses, and how many are free.
_MEMORIES = {
    "the host's memory": ("host_rss_bytes", "host_memory_free_bytes"),
    "the GPU's memory": ("gpu_memory_used_bytes", "gpu_memory_free_bytes"),
}


class Notice(NamedTuple):
    """An event with its message, one line for people."""

    kind: Kind
    text: str


class Watch:
    """Watches the reports of one process of a training over `samples`, with `epoch` samples per epoch.

    Every new process needs its own watch, because memory starts over, and other settings have another speed.
    """

    def __init__(self, metric: Metric, *, samples: int | None, epoch: int | None) -> None:
        self._metric, self._total, self._epoch = metric, samples, epoch
        self._steps, self._windows = _StepWindows(metric.name), list[Window]()
        self._held = {memory: Series() for memory in _MEMORIES}
        self._since = math.inf  # samples at the start of this process
        self._warned: set[str] = set()  # memories

    def hear(self, report: TrialReport) -> list[Notice]:
        self._since = min(self._since, report.samples)
        for memory, (held, _) in _MEMORIES.items():
            if held in report.telemetry:
                self._held[memory].add(report.samples, report.telemetry[held])
        windows = [self._steps.add(record, report.telemetry) for record in report.records]
        self._windows += filter(None, windows)
        return [*self._drifted(), *self._leaking(report)] if any(windows) else []

    @property
    def recent_per_s(self) -> float | None:
        """The throughput over the last five minutes of steps, or since it changed; None at first."""
        recent = self._windows[-_RECENT:]
        return sum(w.trained for w in recent) / sum(w.seconds for w in recent) if recent else None

    @property
    def recent_shares(self) -> dict[str, float]:
        """The share of each phase in the steps of `recent_per_s`; empty if unknown."""
        recent = self._windows[-_RECENT:]
        spent_s = {name: sum(w.phases_s.get(name, 0.0) for w in recent) for name in PHASES}
        total_s = sum(spent_s.values())
        return {name: s / total_s for name, s in spent_s.items()} if total_s else {}

    def _drifted(self) -> list[Notice]:
        change = drift.drift(self._windows)
        if change is None:
            return []
        self._windows = [window for window in self._windows if window.samples >= change.samples]
        ratio, unit = change.ratio.value, self._metric.unit
        moved, cause = f"{abs(ratio - 1):.0%} faster", "it was slower before, likely because of"
        if ratio < 1:
            moved, cause = f"{abs(ratio - 1):.0%} slower", "likely because of"
        speeds = f"{change.after_per_s:.1f} instead of {change.before_per_s:.1f} {unit}/s"
        interval = words.factor.interval(change.ratio)
        text = f"{moved} since {change.samples:,} {unit}, {speeds} ({interval}); {cause} {change.cause}"
        return [Notice(Kind.DRIFT, text)]

    def _leaking(self, report: TrialReport) -> list[Notice]:
        """Returns warnings of leaks, after a full epoch of this process, because caches fill during it."""
        if report.samples - self._since <= (self._epoch or 0):
            return []
        warnings = {memory: self._leak(memory, report) for memory in self._held.keys() - self._warned}
        self._warned |= {memory for memory, text in warnings.items() if text}
        return [Notice(Kind.LEAK, text) for text in warnings.values() if text]

    def _leak(self, memory: str, report: TrialReport) -> str | None:
        slope, samples = trends.slope(self._held[memory].points), report.samples
        held, free = (report.telemetry.get(name) for name in _MEMORIES[memory])
        if slope is None or held is None or free is None:
            return None
        end = self._total or samples + _AS_LONG_AGAIN * (samples - self._since)
        if not trends.will_fill(slope, held, held + free, samples, end):
            return None
        full, unit = trends.full_at(slope.per_sample, held, held + free, samples), self._metric.unit
        soon = "before the training ends"
        if self._total is None:
            left_s = (full - samples) / (self.recent_per_s or math.inf)
            soon = f"in about {units.format_seconds(left_s)} of training"
        when = words.until_full(full, unit, self._epoch)
        grows = f"use of {memory} grows by {words.growth(slope, unit)}"
        return f"{grows}; at this rate it is full after {when}, {soon}"


class _StepWindows:
    """Cuts the steps of a process into windows of `_WINDOW_S` or a little more.

    Evaluations, steps that compile or were suspended, and the step after them belong to no window. Of steps
    without a record of their own, only the time is known.
    """

    def __init__(self, quality: str) -> None:
        self._quality = quality
        self._before: Mapping[str, Any] | None = None  # the previous step
        self._seconds, self._trained, self._phases_s = 0.0, 0, dict.fromkeys(PHASES, 0.0)

    def add(self, record: Mapping[str, Any], telemetry: Mapping[str, float]) -> Window | None:
        """Adds a record; returns the window that it completes, if any."""
        is_step = self._quality not in record and not is_break(record)
        before, self._before = self._before, record if is_step else None
        if not is_step or before is None or record["samples"] <= before["samples"]:
            return None
        self._seconds += max(0.0, record["at_s"] - before["at_s"])
        self._trained += record["samples"] - before["samples"]
        for name in PHASES:
            self._phases_s[name] += units.number(record.get(name)) or 0.0
        if self._seconds < _WINDOW_S:
            return None
        total_s, seconds = sum(self._phases_s.values()), self._seconds
        phases_s = {name: seconds * s / total_s for name, s in self._phases_s.items()} if total_s else {}
        window = Window(record["samples"], self._trained, seconds, phases_s, telemetry)
        self._seconds, self._trained, self._phases_s = 0.0, 0, dict.fromkeys(PHASES, 0.0)
        return window


class MicroBatch:
    """Tracks the smallest micro-batch of two records in a row: a single one may be the last of an epoch."""

    def __init__(self, settings: Mapping[str, Setting]) -> None:
        accumulated = units.number(settings.get(ACCUMULATION)) or 1
        self._smallest = units.number(settings.get(MICRO_BATCH))
        self._effective = (self._smallest or 0) * accumulated
        self._last: float | None = None

    def hear(self, record: Mapping[str, object]) -> str | None:
        """Returns a message if this record and the last one have a smaller micro-batch than all before."""
        if (size := units.number(record.get(MICRO_BATCH))) is None:
            return None
        was, (before, self._last) = self._smallest, (self._last, size)
        if was is None or size != before or not 0 < size < was:
            return None
        self._smallest = size
        return f"the trainer halved its micro-batch to {describe_smaller(size, was, self._effective)}"


def describe_smaller(size: float, was: float, effective: float) -> str:
    """Returns `batch 32 (4 x 8 accumulated) instead of batch 32 (2 x 16 accumulated); ...`."""
    now, before = (view.batch(int(each), math.ceil(effective / each)) for each in (size, was))
    return f"{now} instead of {before}; batch norms see smaller batches"


@dataclass(frozen=True)
class TrainingStatus:
    plan: TrainingPlan
    epoch: int | None = None  # samples of an epoch; None: unknown
    phase: Phase = Phase.START
    seconds: float = 0.0  # over all attempts
    samples: int = 0
    furthest: int = 0  # most samples so far: a return to a checkpoint repeats some
    recent_per_s: float | None = None  # over the last minutes
    step_shares: Mapping[str, float] = field(default_factory=dict)  # of the step's phases, last minutes
    curve: tuple[Point, ...] = ()  # quality of every evaluation, in the user's sign
    loss: float | None = None  # latest
    measurement: Measurement = field(default_factory=Measurement)  # over the whole training so far
    telemetry: Mapping[str, float] = field(default_factory=dict)  # latest

    def with_records(self, records: Iterable[Mapping[str, Any]]) -> Self:
        """Returns the status updated with `records`, an iterable that is read once."""
        curve, loss, samples, furthest = [*self.curve], self.loss, 0, self.furthest
        for record in records:
            samples = record.get("samples", samples)
            furthest = max(furthest, samples)
            quality = units.number(record.get(self.plan.metric.name))
            if quality is not None and abs(quality) <= _LARGEST:
                forget_from(curve, samples)
                curve.append(Point(samples, quality))
            loss = units.number(record[TRAIN_LOSS]) if TRAIN_LOSS in record else loss
        samples = samples or self.samples
        return replace(self, samples=samples, furthest=furthest, curve=tuple(curve), loss=loss)

    def after(self, report: TrialReport, watch: Watch) -> Self:
        """Returns the status updated with a report that `watch` has already taken in."""
        return replace(
            self.with_records(report.records),
            phase=report.phase,
            seconds=report.elapsed_s,
            samples=report.samples,
            furthest=max(self.furthest, report.samples),
            recent_per_s=watch.recent_per_s,
            step_shares=watch.recent_shares,
            measurement=report.measurement,
            telemetry=report.telemetry,
        )

    @property
    def left_s(self) -> float | None:
        """The remaining time at the current speed of steps; None if unknown."""
        if self.plan.samples is None or not self.recent_per_s:
            return None
        return max(0, self.plan.samples - self.samples) / self.recent_per_s

    @property
    def best(self) -> Point | None:
        """The best evaluation so far, the first of equal ones."""
        metric = self.plan.metric
        return max(self.curve, key=lambda point: metric.turned(point.value), default=None)
