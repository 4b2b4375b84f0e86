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

_LARGEST = 1e30  # quality that is shown


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
