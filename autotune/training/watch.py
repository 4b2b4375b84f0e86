"""Watches a running training for changes of speed and their cause, growing memory, and halved batches.

Stateful, no I/O: reports in, messages out.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from autotune.core import units
from autotune.core.measurement import PHASES
from autotune.core.metric import Metric
from autotune.core.record_names import COMPILING
from autotune.core.settings import ACCUMULATION, MICRO_BATCH, Setting
from autotune.display import words
from autotune.judging.measurement import drift, trends
from autotune.judging.measurement.drift import Drift, Window
from autotune.judging.measurement.trends import Series
from autotune.training.events import Kind
from autotune.trials.reported import TrialReport

_WINDOW_S = 10.0
_RECENT = 30  # windows
_SAME = "the same effective batch; statistics of batch norms are of smaller batches"
_AS_LONG_AGAIN = 3  # assumed rest of a training of unknown length, in multiples of the samples so far


class MemoryFigures(NamedTuple):
    """A memory, and the names of its figures in the telemetry."""

    name: str
    held: str  # bytes that the training uses
    free: str  # bytes that are left


MEMORIES = (
    MemoryFigures("the host's memory", "host_rss_bytes", "host_memory_free_bytes"),
    MemoryFigures("the GPU's memory", "gpu_memory_used_bytes", "gpu_memory_free_bytes"),
)


class Said(NamedTuple):
    """Event with its message, one line for people."""

    kind: Kind
    text: str


class TrainingLength(NamedTuple):
    """The samples of a training and of an epoch; None if unknown."""

    samples: int | None
    epoch: int | None


class Watch:
    """Watches the reports of one process of a training.

    Every process needs a new one: its memory starts over, and other settings have another speed.
    """

    def __init__(self, metric: Metric, length: TrainingLength) -> None:
        self._metric, self._length = metric, length
        self._steps, self._windows = StepWindows(metric.name), list[Window]()
        self._held = {memory: Series() for memory in MEMORIES}
        self._since = math.inf  # samples at the start of this process
        self._warned: set[MemoryFigures] = set()

    def hear(self, report: TrialReport) -> list[Said]:
        """Returns the messages that follow from a report."""
        self._since = min(self._since, report.samples)
        for memory, series in self._held.items():
            if memory.held in report.telemetry:
                series.add(report.samples, report.telemetry[memory.held])
        is_full = [self._count(record, report.telemetry) for record in report.records]
        return [*self._drifted(), *self._leaking(report)] if any(is_full) else []

    @property
    def recent_per_s(self) -> float | None:
        """Throughput over the last five minutes of steps, or since it changed; None at first."""
        recent = self._windows[-_RECENT:]
        return sum(w.trained for w in recent) / sum(w.seconds for w in recent) if recent else None

    @property
    def recent_shares(self) -> dict[str, float]:
        """Returns the share of each phase in those steps; empty if unknown."""
        recent = self._windows[-_RECENT:]
        spent_s = {name: sum(w.phases_s.get(name, 0.0) for w in recent) for name in PHASES}
        total_s = sum(spent_s.values())
        return {name: s / total_s for name, s in spent_s.items()} if total_s else {}

    def _count(self, record: Mapping[str, Any], seen: Mapping[str, float]) -> bool:
        """Adds a record; returns True if it completes a window."""
        window = self._steps.add(record, seen)
        self._windows += [window] if window else []
        return window is not None

    def _drifted(self) -> list[Said]:
        change = drift.drift(self._windows)
        if change is None:
            return []
        self._windows = [window for window in self._windows if window.samples >= change.samples]
        return [Said(Kind.DRIFT, _drift_text(change, self._metric.unit))]

    def _leaking(self, report: TrialReport) -> list[Said]:
        """Waits for one full epoch of this process first, because caches fill during it."""
        if report.samples - self._since <= (self._length.epoch or 0):
            return []
        warnings = {memory: self._leak(memory, report) for memory in self._held.keys() - self._warned}
        self._warned |= {memory for memory, text in warnings.items() if text}
        return [Said(Kind.LEAK, text) for text in warnings.values() if text]

    def _leak(self, memory: MemoryFigures, report: TrialReport) -> str | None:
        slope, samples = trends.slope(self._held[memory].points), report.samples
        held, free = report.telemetry.get(memory.held), report.telemetry.get(memory.free)
        if slope is None or held is None or free is None:
            return None
        if not trends.will_fill(slope, held, held + free, samples, self._end(samples)):
            return None
        full = trends.full_at(slope, held, held + free, samples)
        unit, when = self._metric.unit, words.until_full(full, self._metric.unit, self._length.epoch)
        rises = f"use of {memory.name} grows: {words.growth(slope, unit)}"
        return f"{rises}; at this slope it is full after {when}, {self._how_soon(full.samples - samples)}"

    def _end(self, samples: int) -> float:
        """Returns the samples at which the training ends, assumed if its length is unknown."""
        return self._length.samples or samples + _AS_LONG_AGAIN * (samples - self._since)

    def _how_soon(self, left: float) -> str:
        """Returns when memory will be full, `left` samples from now, in words."""
        if self._length.samples is not None:
            return "before the training ends"
        return f"in about {units.format_seconds(left / (self.recent_per_s or math.inf))} of training"


class StepWindows:
    """Cuts the steps of a process into windows of `window_s` or a little more.

    Evaluations, steps that compile, and the step after either belong to no window. Of steps without a record
    of their own, only the time is known.
    """

    def __init__(self, quality: str, window_s: float = _WINDOW_S) -> None:
        self._quality, self._window_s = quality, window_s
        self._before: Mapping[str, Any] | None = None  # the previous step
        self._begin()

    def _begin(self) -> None:
        self._seconds, self._trained, self._phases_s = 0.0, 0, dict.fromkeys(PHASES, 0.0)

    def add(self, record: Mapping[str, Any], seen: Mapping[str, float]) -> Window | None:
        """Adds a record with the telemetry `seen`; returns the window that it completes, if any."""
        is_step = self._quality not in record and record.get(COMPILING) is not True
        before, self._before = self._before, record if is_step else None
        if not is_step or before is None or record["samples"] <= before["samples"]:
            return None
        self._seconds += max(0.0, record["at_s"] - before["at_s"])
        self._trained += record["samples"] - before["samples"]
        for name in PHASES:
            self._phases_s[name] += units.number(record.get(name)) or 0.0
        return self._window(record["samples"], seen) if self._seconds >= self._window_s else None

    def _window(self, samples: int, seen: Mapping[str, float]) -> Window:
        """Returns the window up to `samples`; its phases have the shares of the reported steps."""
        total_s, seconds = sum(self._phases_s.values()), self._seconds
        phases_s = {name: seconds * s / total_s for name, s in self._phases_s.items()} if total_s else {}
        window = Window(samples, self._trained, seconds, phases_s, seen)
        self._begin()
        return window


def _drift_text(change: Drift, unit: str) -> str:
    ratio = change.ratio.value
    far = f"{abs(ratio - 1):.0%} {'slower' if ratio < 1 else 'faster'}"
    why = (
        f"likely cause: {change.cause}" if ratio < 1 else f"it was slower before, likely for: {change.cause}"
    )
    return (
        f"{far} since {change.samples} {unit}: {change.after_per_s:.1f} instead of {change.before_per_s:.1f} "
        f"{unit}/s ({words.factor.interval(change.ratio)}); {why}"
    )


class MicroBatch:
    """Tracks the smallest micro-batch seen in two consecutive records.

    A single smaller one may be the last batch of an epoch.
    """

    def __init__(self, settings: Mapping[str, Setting]) -> None:
        accumulated = units.number(settings.get(ACCUMULATION)) or 1
        self._smallest = units.number(settings.get(MICRO_BATCH))
        self._effective = (self._smallest or 0) * accumulated
        self._last: float | None = None

    def hear(self, record: Mapping[str, object]) -> str | None:
        """Returns a message if `record` and the one before it have a smaller micro-batch, else None."""
        if (size := units.number(record.get(MICRO_BATCH))) is None:
            return None
        was, (before, self._last) = self._smallest, (self._last, size)
        if was is None or size != before or not 0 < size < was:
            return None
        self._smallest = size
        return f"the trainer halved its micro-batch: {instead(size, was, self._effective)}"


def instead(size: float, was: float, effective: float) -> str:
    """Returns e.g. `8x4 instead of 16x2: ...`, size x accumulation at the same `effective` batch."""
    now, before = (f"{one:g}x{math.ceil(effective / one)}" for one in (size, was))
    return f"{now} instead of {before}: {_SAME}"
