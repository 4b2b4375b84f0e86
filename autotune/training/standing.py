"""The status of a running training for its screen, from plan, records and reports. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from autotune.core import units
from autotune.core.measurement import Measurement
from autotune.core.record_names import TRAIN_LOSS
from autotune.judging.measurement.trends import Point
from autotune.storage.records import forget_from
from autotune.training.plan import TrainingPlan
from autotune.training.watch import Watch
from autotune.trials.progress import Phase
from autotune.trials.report import TrialReport

_LARGEST = 1e30  # figure that is drawn: sums and differences stay finite
_FINE = 1 / 64  # least distance of two points of the loss curve, as a share of the samples so far


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
    losses: tuple[Point, ...] = ()  # thinned training losses
    loss: float | None = None  # latest
    measurement: Measurement = field(default_factory=Measurement)  # over the whole training so far
    telemetry: Mapping[str, float] = field(default_factory=dict)  # latest

    def with_records(self, records: Iterable[Mapping[str, Any]]) -> Self:
        """Returns the status updated with `records`, an iterable that is read once."""
        curve, losses, loss, samples, furthest = [*self.curve], [*self.losses], self.loss, 0, self.furthest
        for record in records:
            samples = record.get("samples", samples)
            furthest = max(furthest, samples)
            _add(curve, samples, record.get(self.plan.metric.name))
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


def _add(points: list[Point], samples: int, value: object, apart: float = 0.0) -> None:
    """Appends a point if `value` is a number; all but the last stay at least `apart` samples apart."""
    number = units.number(value)
    if number is None or abs(number) > _LARGEST:
        return
    forget_from(points, samples)
    if len(points) > 1 and samples - points[-2].samples < apart:
        points.pop()
    points.append(Point(samples, number))
