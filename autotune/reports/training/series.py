"""Records, events and telemetry of a training over the seconds that it has run. Pure."""

import itertools
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from autotune.core import units
from autotune.core.measurement import PHASES
from autotune.core.record_names import SUSPENDED, TRAIN_LOSS
from autotune.judging.measurement import trends
from autotune.reports.curves import CurvePoint
from autotune.reports.training.model import Curves, Growth
from autotune.storage.records import forget_from, is_mark
from autotune.training.watch import MEMORIES, StepWindows

_BESIDE = ("val_loss", "grad_norm", "learning_rate")
_MOST_POINTS = 300  # of a curve
_WINDOW_S, _SHOWN_S = 1.0, 10.0  # between two speeds that are measured, and that are shown
_FEWEST_POINTS = 20  # of the curve of a short training


@dataclass(frozen=True)
class TrainingAttempt:
    """A process that ran the training."""

    begun: float  # seconds since 1970
    from_s: float  # seconds trained when it began
    to_s: float  # seconds trained when it ended


class Track:
    """Collects the curves of a training from its records; a record with the `quality` is an evaluation.

    The time between two attempts does not count.
    """

    def __init__(self, quality: str) -> None:
        self.seconds, self.samples, self.repeated = 0.0, 0, 0
        self._begun: list[tuple[float, float]] = []  # of every attempt: when, and the seconds trained by then
        self._offset_s = 0.0  # from the clock of the last attempt to seconds of training
        self._quality = quality
        self._curves: dict[str, list[CurvePoint]] = {name: [] for name in (TRAIN_LOSS, quality, *_BESIDE)}
        self._steps = StepWindows(quality, _WINDOW_S)
        self._speed: list[CurvePoint] = []
        self._phases_s: dict[str, list[CurvePoint]] = {name.removesuffix("_s"): [] for name in PHASES}

    @property
    def attempts(self) -> list[TrainingAttempt]:
        ends = [*(from_s for _, from_s in self._begun[1:]), self.seconds]
        return [TrainingAttempt(*begun, end) for begun, end in zip(self._begun, ends, strict=False)]

    def count(self, record: Mapping[str, Any]) -> None:
        """Adds a record, or the mark of a new attempt."""
        if is_mark(record):
            self._begun.append((units.number(record["attempt"]) or 0.0, self.seconds))
            self._offset_s = self.seconds - record["clock_s"]
            self._steps = StepWindows(self._quality, _WINDOW_S)
            return
        self._offset_s -= units.number(record.get(SUSPENDED)) or 0.0
        if self._begun:
            self.seconds = max(self.seconds, self._offset_s + record["at_s"])
        samples = int(record["samples"])
        self.repeated += max(0, self.samples - samples)  # resumed from an earlier checkpoint
        self.samples = samples
        for name in filter(_is_memory, record):
            self._curves.setdefault(name, [])
        for name, points in self._curves.items():
            number = units.number(record.get(name))
            # A resumed training reaches later points again.
            forget_from(points, samples + 1 if number is None else samples)
            if number is not None:
                points.append(self._point(number))
        if window := self._steps.add(record, {}):
            self._speed.append(self._point(window.per_s))
            for name, seconds in window.phases_s.items():
                self._phases_s[name.removesuffix("_s")].append(self._point(seconds / window.trained))

    def _point(self, value: float) -> CurvePoint:
        return CurvePoint(self.samples, self.seconds, value)

    def curves(self, telemetry: Mapping[str, Sequence[CurvePoint]]) -> Curves:
        """Returns all curves so far, with the curves of the `telemetry`."""
        most = round(min(_MOST_POINTS, max(_FEWEST_POINTS, self.seconds / _SHOWN_S)))
        phases_s = {name: each for name, each in self._phases_s.items() if any(p.value for p in each)}
        curves, quality = _thinned(self._curves), self._quality
        return Curves(
            loss=curves[TRAIN_LOSS],
            quality=tuple(self._curves[quality]),
            speed=thin(self._speed, most),
            phases_s=_thinned(phases_s, most),
            beside={name: curves[name] for name in _BESIDE if name != quality},
            machine={name: curves[name] for name in filter(_is_memory, curves)} | _thinned(telemetry),
        )


def seconds_at(at: float, attempts: Sequence[TrainingAttempt]) -> float:
    """Returns the seconds trained at a moment `at`, in seconds since 1970."""
    begun = [attempt for attempt in attempts if attempt.begun <= at]
    return min(begun[-1].to_s, begun[-1].from_s + at - begun[-1].begun) if begun else 0.0


def _is_memory(name: str) -> bool:
    return name.startswith("memory_") and name.endswith("_bytes")


def _thinned(
    curves: Mapping[str, Sequence[CurvePoint]], most: int = _MOST_POINTS
) -> dict[str, tuple[CurvePoint, ...]]:
    return {name: thin(points, most) for name, points in curves.items()}


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


def thin(points: Sequence[CurvePoint], most: int = _MOST_POINTS) -> tuple[CurvePoint, ...]:
    """Returns `points`, or their means over `most` equal spans of time if there are more."""
    if len(points) <= most:
        return tuple(points)
    first_s, last_s = points[0].seconds, points[-1].seconds
    apart_s = (last_s - first_s) / most or 1.0
    parts = itertools.groupby(points, lambda point: min(most - 1, int((point.seconds - first_s) / apart_s)))
    means = []
    for _, part in parts:
        *_, last = each = list(part)
        means.append(replace(last, value=statistics.fmean(point.value for point in each)))
    return tuple(means)
