"""Records, events and telemetry of a training on one time axis: the seconds in which it ran. Pure."""

import bisect
import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.core import units
from autotune.core.trial import PHASES
from autotune.reports.training.model import Curves, Point
from autotune.storage.records import COMPILING, is_mark

LOSS = "train_loss"
_BESIDE = ("val_loss", "grad_norm", "learning_rate")
_MOST_POINTS = 300  # of a curve
_WINDOW_S, _FEWEST_WINDOWS = 10.0, 20  # over which a speed is taken; a short training has so many


@dataclass(frozen=True)
class Attempt:
    """A process that ran the training: when it began, and its first and last second of the time trained."""

    begun: float  # in seconds since 1970
    from_s: float
    to_s: float


class Timeline:
    """The attempts of a training, as their records come. Between two of them no time passes."""

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
    def attempts(self) -> list[Attempt]:
        ends = [*self._from_s[1:], self.seconds]
        return list(map(Attempt, self._begun, self._from_s, ends))


def seconds_at(at: float, attempts: Sequence[Attempt]) -> float:
    """How long the training had run at a moment: after an attempt's end, as long as at that end."""
    known = bisect.bisect_right(attempts, at, key=lambda attempt: attempt.begun)
    if not known:
        return 0.0
    last = attempts[known - 1]
    return min(last.to_s, last.from_s + at - last.begun)


@dataclass(frozen=True)
class _Step:
    """So many samples in so many seconds, up to a point; or several steps in a row."""

    samples: int
    at_s: float
    trained: int
    seconds: float
    phases_s: tuple[float, ...]  # in the order of `PHASES`, of those steps that were kept


class Track:
    """The curves of a training, as its records come; an evaluation's have the `quality`."""

    def __init__(self, quality: str) -> None:
        self.timeline = Timeline()
        self.repeated = self.samples = 0
        self._quality = quality
        self._loss: list[Point] = []
        self._found: list[Point] = []
        self._steps: list[_Step] = []
        self._before: tuple[int, float] | None = None  # of the step before, where the next one follows on it
        self._memory: dict[str, list[Point]] = defaultdict(list)
        self._beside: dict[str, list[Point]] = {name: [] for name in _BESIDE if name != quality}

    def count(self, record: Mapping[str, Any]) -> None:
        """Adds a record, or the mark of a new attempt."""
        self.timeline.count(record)
        if is_mark(record):
            self._before = None
            return
        samples, at_s = int(record["samples"]), self.timeline.seconds
        if samples < self.samples:  # resumed from an earlier checkpoint
            self.repeated += self.samples - samples
        self.samples = samples
        self._add(self._loss, record.get(LOSS))
        self._add(self._found, record.get(self._quality))
        for name, points in self._beside.items():
            self._add(points, record.get(name))
        for name in record:
            if name.startswith("memory_") and name.endswith("_bytes"):
                self._add(self._memory[name], record[name])
        self._step(record, samples, at_s)

    def _add(self, points: list[Point], value: object) -> None:
        """Adds a figure in place of those that a resumed training reaches again."""
        while points and points[-1].samples > self.samples:
            points.pop()
        found = units.number(value)
        if found is None:
            return
        if points and points[-1].samples == self.samples:
            points.pop()
        points.append(Point(self.samples, self.timeline.seconds, found))

    def _step(self, record: Mapping[str, Any], samples: int, at_s: float) -> None:
        """Adds a step; it does not count where it follows on something else, or contains something else."""
        is_step = self._quality not in record and record.get(COMPILING) is not True
        if is_step and self._before is not None and samples > self._before[0]:
            trained, seconds = samples - self._before[0], at_s - self._before[1]
            phases_s = tuple(units.number(record.get(name)) or 0.0 for name in PHASES)
            self._steps.append(_Step(samples, at_s, trained, seconds, phases_s))
        self._before = (samples, at_s) if is_step else None

    def curves(self, seen: Mapping[str, Sequence[Point]]) -> Curves:
        """All curves so far, with what was `seen` of the machine."""
        windows = list(_windows(self._steps, self.timeline.seconds))
        return Curves(
            loss=thinned(self._loss),
            quality=tuple(self._found),
            speed=tuple(Point(w.samples, w.at_s, w.trained / w.seconds) for w in windows),
            phases_s=_phases(windows),
            beside={name: thinned(points) for name, points in self._beside.items()},
            machine={name: thinned(points) for name, points in {**self._memory, **seen}.items()},
        )


def seen(samples: Iterable[Mapping[str, Any]], attempts: Sequence[Attempt]) -> dict[str, list[Point]]:
    """Telemetry by its names. A sample has the moment in `at`, and how far the training was in `samples`."""
    found: dict[str, list[Point]] = defaultdict(list)
    for sample in samples:
        at, done = units.number(sample.get("at")), units.number(sample.get("samples"))
        if at is None or done is None:
            continue
        for name, given in sample.items():
            value = units.number(given)
            if name not in {"at", "samples"} and value is not None:
                found[name].append(Point(int(done), seconds_at(at, attempts), value))
    return found


def thinned(points: Sequence[Point], most: int = _MOST_POINTS) -> tuple[Point, ...]:
    """`points`, or where there are more the mean of those that lie in each of as many equal times."""
    if len(points) <= most:
        return tuple(points)
    first_s, last_s = points[0].seconds, points[-1].seconds
    apart_s = (last_s - first_s) / most or 1.0
    parts = itertools.groupby(points, lambda point: min(most - 1, int((point.seconds - first_s) / apart_s)))
    return tuple(_mean(list(part)) for _, part in parts)


def _mean(points: Sequence[Point]) -> Point:
    return Point(points[-1].samples, points[-1].seconds, sum(p.value for p in points) / len(points))


def _windows(steps: Sequence[_Step], whole_s: float) -> Iterator[_Step]:
    """The steps over windows of equal times of training."""
    window_s = max(min(_WINDOW_S, whole_s / _FEWEST_WINDOWS), whole_s / _MOST_POINTS)
    begun, within_s = 0, 0.0
    for n, step in enumerate(steps, start=1):
        within_s += step.seconds
        if within_s >= window_s > 0:
            yield _joined(steps[begun:n])
            begun, within_s = n, 0.0


def _joined(steps: Sequence[_Step]) -> _Step:
    """Steps in a row as one."""
    phases_s = zip(*(step.phases_s for step in steps), strict=True)
    return _Step(
        samples=steps[-1].samples,
        at_s=steps[-1].at_s,
        trained=sum(step.trained for step in steps),
        seconds=sum(step.seconds for step in steps),
        phases_s=tuple(map(sum, phases_s)),
    )


def _phases(windows: Sequence[_Step]) -> dict[str, tuple[Point, ...]]:
    """The seconds of a sample by the phase of its step: their sum is that of the window's speed."""
    told = [(window, sum(window.phases_s)) for window in windows if sum(window.phases_s) > 0]
    found = {
        name.removesuffix("_s"): tuple(
            Point(w.samples, w.at_s, w.seconds / w.trained * w.phases_s[n] / whole_s) for w, whole_s in told
        )
        for n, name in enumerate(PHASES)
    }
    return {name: points for name, points in found.items() if any(point.value for point in points)}
