"""Records, events and telemetry of a training over the seconds that it has run. Pure."""

import bisect
import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.core import units
from autotune.core.measurement import PHASES
from autotune.core.record_names import TRAIN_LOSS
from autotune.judging.measurement import trends
from autotune.judging.measurement.drift import Window
from autotune.reports.curves import CurvePoint
from autotune.reports.training.model import Curves, Growth
from autotune.storage.records import forget_from, is_mark
from autotune.training.watch import MEMORIES, StepWindows

_BESIDE = ("val_loss", "grad_norm", "learning_rate")
_MOST_POINTS = 300  # of a curve
_WINDOW_S, _SHOWN_S, _FEWEST_POINTS = 1.0, 10.0, 20  # between measured, shown speeds; of a short training


@dataclass(frozen=True)
class TrainingAttempt:
    """A process that ran the training."""

    begun: float  # seconds since 1970
    from_s: float  # seconds trained when it began
    to_s: float  # seconds trained when it ended


class AttemptTimeline:
    """Follows the attempts of a training from its records. The time between two attempts does not count."""

    def __init__(self) -> None:
        self._begun: list[float] = []
        self._from_s: list[float] = []
        self._clock_s = 0.0
        self.seconds = 0.0

    def count(self, record: Mapping[str, Any]) -> None:
        if is_mark(record):
            self._begun.append(units.number(record["attempt"]) or 0.0)
            self._from_s.append(self.seconds)
            self._clock_s = record["clock_s"]
        elif self._from_s:
            self.seconds = max(self.seconds, self._from_s[-1] + record["at_s"] - self._clock_s)

    @property
    def attempts(self) -> list[TrainingAttempt]:
        ends = [*self._from_s[1:], self.seconds]
        return list(map(TrainingAttempt, self._begun, self._from_s, ends))


def seconds_at(at: float, attempts: Sequence[TrainingAttempt]) -> float:
    """Returns the seconds trained at a moment `at`, in seconds since 1970."""
    known = bisect.bisect_right(attempts, at, key=lambda attempt: attempt.begun)
    if not known:
        return 0.0
    last = attempts[known - 1]
    return min(last.to_s, last.from_s + at - last.begun)


class Track:
    """Collects the curves of a training from its records; those of evaluations have the `quality`."""

    def __init__(self, quality: str) -> None:
        self.timeline = AttemptTimeline()
        self.repeated = self.samples = 0
        self._quality = quality
        self._curves: dict[str, list[CurvePoint]] = {name: [] for name in (TRAIN_LOSS, quality, *_BESIDE)}
        self._steps = StepWindows(quality, _WINDOW_S)
        self._speed: list[CurvePoint] = []
        self._phases_s: dict[str, list[CurvePoint]] = {name.removesuffix("_s"): [] for name in PHASES}

    def count(self, record: Mapping[str, Any]) -> None:
        """Adds a record, or the mark of a new attempt."""
        self.timeline.count(record)
        if is_mark(record):
            self._steps = StepWindows(self._quality, _WINDOW_S)
            return
        samples = int(record["samples"])
        if samples < self.samples:  # resumed from an earlier checkpoint
            self.repeated += self.samples - samples
        self.samples = samples
        for name in filter(_is_memory, record):
            self._curves.setdefault(name, [])
        for name, points in self._curves.items():
            self._add(points, record.get(name))
        if window := self._steps.add(record, {}):
            self._add_window(window)

    def _add(self, points: list[CurvePoint], value: object) -> None:
        """Adds a figure, and drops those from before a resumption that the training reaches again."""
        forget_from(points, self.samples + 1)
        number = units.number(value)
        if number is None:
            return
        forget_from(points, self.samples)
        points.append(CurvePoint(self.samples, self.timeline.seconds, number))

    def _add_window(self, window: Window) -> None:
        """Adds the window's speed, and its seconds per sample by phase."""
        at_s = self.timeline.seconds
        self._speed.append(CurvePoint(window.samples, at_s, window.per_s))
        for name, seconds in window.phases_s.items():
            point = CurvePoint(window.samples, at_s, seconds / window.trained)
            self._phases_s[name.removesuffix("_s")].append(point)

    def curves(self, seen: Mapping[str, Sequence[CurvePoint]]) -> Curves:
        """Returns all curves so far, with the telemetry `seen`."""
        most = round(min(_MOST_POINTS, max(_FEWEST_POINTS, self.timeline.seconds / _SHOWN_S)))
        phases_s = {name: each for name, each in self._phases_s.items() if any(p.value for p in each)}
        shown, quality = _thinned(self._curves), self._quality
        return Curves(
            loss=shown[TRAIN_LOSS],
            quality=tuple(self._curves[quality]),
            speed=thinned(self._speed, most),
            phases_s=_thinned(phases_s, most),
            beside={name: shown[name] for name in _BESIDE if name != quality},
            machine={name: shown[name] for name in filter(_is_memory, shown)} | _thinned(seen),
        )


def _is_memory(name: str) -> bool:
    return name.startswith("memory_") and name.endswith("_bytes")


def _thinned(
    curves: Mapping[str, Sequence[CurvePoint]], most: int = _MOST_POINTS
) -> dict[str, tuple[CurvePoint, ...]]:
    return {name: thinned(points, most) for name, points in curves.items()}


def telemetry_curves(
    samples: Iterable[Mapping[str, Any]], attempts: Sequence[TrainingAttempt]
) -> dict[str, list[CurvePoint]]:
    """Returns telemetry as curves by name. A sample has its time `at` and the `samples` trained by then."""
    telemetry: dict[str, list[CurvePoint]] = defaultdict(list)
    for sample in samples:
        at, done = units.number(sample.get("at")), units.number(sample.get("samples"))
        if at is None or done is None:
            continue
        for name, given in sample.items():
            value = units.number(given)
            if name not in {"at", "samples"} and value is not None:
                telemetry[name].append(CurvePoint(int(done), seconds_at(at, attempts), value))
    return telemetry


def growth(seen: Mapping[str, Sequence[CurvePoint]], attempts: Sequence[TrainingAttempt]) -> Iterator[Growth]:
    """Yields the growth of each memory's use in the last process, if there are enough points."""
    from_s = attempts[-1].from_s if attempts else 0.0
    for memory in MEMORIES:
        held = [point for point in seen.get(memory.held, ()) if point.seconds > from_s]
        slope = trends.slope([trends.Point(point.samples, point.value) for point in held])
        if slope is None:
            continue
        free, last = seen.get(memory.free), held[-1]
        is_sure = trends.is_growing(slope)
        full = trends.full_at(slope, 0.0, free[-1].value, last.samples) if free and is_sure else None
        yield Growth(memory.name, slope, full)


def thinned(points: Sequence[CurvePoint], most: int = _MOST_POINTS) -> tuple[CurvePoint, ...]:
    """Returns `points`, or their means over `most` equal spans of time if there are more."""
    if len(points) <= most:
        return tuple(points)
    first_s, last_s = points[0].seconds, points[-1].seconds
    apart_s = (last_s - first_s) / most or 1.0
    parts = itertools.groupby(points, lambda point: min(most - 1, int((point.seconds - first_s) / apart_s)))
    return tuple(_mean(list(part)) for _, part in parts)


def _mean(points: Sequence[CurvePoint]) -> CurvePoint:
    return CurvePoint(points[-1].samples, points[-1].seconds, sum(p.value for p in points) / len(points))
