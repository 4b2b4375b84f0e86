"""The state of a running training: all that is shown of it. Pure: plan, records, reports in."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from autotune.core import units
from autotune.core.trial import Measurement
from autotune.judging.trends import Point
from autotune.space.sections import turned
from autotune.storage.records import TRAIN_LOSS
from autotune.training.plan import Plan
from autotune.training.watch import Watch
from autotune.trials.progress import Phase
from autotune.trials.reported import Report

_LARGEST = 1e30  # of a figure that is drawn: differences and sums are numbers, too
_FINE = 1 / 64  # of the samples so far, between two points of a curve that is only looked at


@dataclass(frozen=True)
class Standing:
    """The training that `plan` has, in a `phase` after `seconds` of all its attempts and so many `samples`.

    It may have come `furthest` before it went back to its checkpoint. An `epoch` is so many samples, None
    where that is not known. `curve` has the quality of every evaluation, in the user's own sign, and `losses`
    some of the losses of its steps. `recent_per_s` and `step_shares` are of the last minutes, `measurement`
    of all so far, `telemetry` of now.
    """

    plan: Plan
    epoch: int | None = None
    phase: Phase = Phase.START
    seconds: float = 0.0
    samples: int = 0
    furthest: int = 0
    recent_per_s: float | None = None
    step_shares: Mapping[str, float] = field(default_factory=dict)
    curve: tuple[Point, ...] = ()
    losses: tuple[Point, ...] = ()
    loss: float | None = None
    measurement: Measurement = field(default_factory=Measurement)
    telemetry: Mapping[str, float] = field(default_factory=dict)

    def with_records(self, records: Iterable[Mapping[str, Any]]) -> Self:
        """With what these have shown; those of a training of weeks are never held at once."""
        curve, losses, loss, samples, furthest = [*self.curve], [*self.losses], self.loss, 0, self.furthest
        for record in records:
            samples = record.get("samples", samples)
            furthest = max(furthest, samples)
            _add(curve, samples, record.get(self.plan.quality))
            _add(losses, samples, record.get(TRAIN_LOSS), apart=_FINE * samples)
            loss = units.number(record[TRAIN_LOSS]) if TRAIN_LOSS in record else loss
        return replace(
            self,
            samples=samples or self.samples,
            furthest=furthest,
            curve=tuple(curve),
            losses=tuple(losses),
            loss=loss,
        )

    def after(self, report: Report, watch: Watch) -> Self:
        """With a report of the process that `watch` hears."""
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
        """The time that its steps will take from here at their speed of now; None if that is not known."""
        if self.plan.samples is None or not self.recent_per_s:
            return None
        return max(0, self.plan.samples - self.samples) / self.recent_per_s

    @property
    def best(self) -> Point | None:
        """The best evaluation so far, the first of equal ones."""
        minimize = self.plan.minimize
        return max(self.curve, key=lambda point: turned(point.value, minimize=minimize), default=None)


def _add(points: list[Point], samples: int, value: object, apart: float = 0.0) -> None:
    """Adds a point where `value` is a number. Of the points before the last one, each is so far `apart`."""
    found = units.number(value)
    if found is None or abs(found) > _LARGEST:
        return
    while points and points[-1].samples >= samples:
        points.pop()  # a training resumed from its checkpoint yields what came after it again
    if len(points) > 1 and samples - points[-2].samples < apart:
        points.pop()
    points.append(Point(samples, found))
