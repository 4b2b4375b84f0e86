"""The state of a trial, folded from its records. Pure: timestamps come with the records."""

import statistics
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Any

from autotune.core import units
from autotune.core.measurement import PHASES, Evaluation, Measurement, Metric, Schedule, Throughput
from autotune.core.record_names import COMPILING, FLOPS, PARAMETERS, QUEUED, RATE, SUSPENDED, TRAIN_LOSS
from autotune.core.settings import PROCESSES, Config, effective_batch
from autotune.core.trial import Failure, Outcome, Status
from autotune.judging.measurement.meter import Meter, prefetched_steps, with_evaluations
from autotune.storage.records import forget_from, is_mark, steps_of
from autotune.trials import failures
from autotune.trials.peaks import MemoryPeaks, amount

_STEPS_TO_TELL = 5  # the processes that train by the samples of a step: a last batch may be small
_WHOLE_SHARE = 0.95  # of a training's samples, due before its last evaluation; an epoch may drop a batch


class Phase(StrEnum):
    WAITING = "waiting"  # for a node of a cluster
    START = "start"
    WARM_UP = "warm-up"
    MEASURING = "measuring"
    TRAINING = "training"
    EVALUATING = "evaluating"
    RACING = "racing"


class Progress:
    """Folds the records of a trial with `settings` into its measurement.

    Records have the workload's own sign. Internally higher is better: a quality to minimize, its chance level
    and its per-item scores are negated when they enter the curve, and nowhere else.
    """

    def __init__(self, metric: Metric, settings: Config) -> None:
        self._metric = metric
        self._prefetched = prefetched_steps(settings)
        self._batch, self._processes = effective_batch(settings), int(settings.get(PROCESSES) or 1)
        self._steps, self._largest_step = 0, 0.0  # the latter in samples
        self._meters = [Meter(self._prefetched)]  # one for each node that it has run on
        self._node = ""
        self.evaluated_samples = 0  # before the last evaluation
        self._samples = self._steps_since_evaluation = 0
        self._has_begun = False
        self.ended = False  # by itself
        self._start: float | None = None
        self._first_loss = self._last_loss = 0.0  # of the steps before the first evaluation
        self._schedule: Schedule | None = None
        self._raw_quality: object = None  # the raw quality in the last evaluation
        self._scores: dict[str, float] = {}
        self._curve: list[Evaluation] = []
        self._items: list[tuple[float, ...]] = []
        self._memory = MemoryPeaks()
        self._phase_s = dict.fromkeys(PHASES, 0.0)
        self._flops: Counter[str] = Counter()  # by number format, of the steps in which they were counted
        self._flops_samples = 0  # of those steps
        self._parameters = 0

    @property
    def curve(self) -> tuple[Evaluation, ...]:
        return tuple(self._curve)

    @property
    def quality(self) -> float | None:
        """The quality at the last evaluation, higher is better; None if it was not a finite number."""
        return self._turned(self._scores.get(self._metric.name))

    @property
    def _meter(self) -> Meter:
        return self._meters[-1]

    def _turned(self, value: float | None) -> float | None:
        return None if value is None else self._metric.turned(value)

    def fault(self, planned: int, *, is_first: bool) -> str | None:
        """Returns why a running trial of `planned` samples cannot become a valid one; None if it may."""
        name, unit = self._metric.name, self._metric.unit
        # Both: the first step of a large batch may already be past the end.
        is_far_beyond = self._samples >= 3 * planned and self._steps_since_evaluation >= 100
        if self.evaluated_samples < planned and is_far_beyond:
            return (
                f"no record has {name} after {self._samples:,} {unit}; the workload must yield one that has "
                f"it by {planned:,}, the {unit} of a trial"
            )
        # The first trial alone: among many, one may have these numbers by chance.
        is_known = is_first and self._steps >= _STEPS_TO_TELL and min(self._processes, self._largest_step) > 1
        if is_known and round(self._largest_step) * self._processes == self._batch:
            return (
                f"a step trains {self._largest_step:,.0f} {unit}, but {self._processes} processes with these "
                f"settings would train {self._batch:,}: fewer have started, or they share one batch; if so, "
                f"set {PROCESSES} to 1 in the baseline"
            )
        return None

    def phase(self, silent_s: float) -> Phase:
        """Returns the phase of a trial whose last record came `silent_s` ago."""
        throughput, step_s = self._meter.throughput(), self._meter.recent_step_s()
        if not self._has_begun:
            return Phase.START
        # No record announces an evaluation, so silence is taken for one; a hang looks the same.
        # Two seconds at least: a step of milliseconds is late for any reason.
        if step_s is not None and silent_s > max(10 * step_s, 2.0):
            return Phase.EVALUATING
        if throughput is None:
            return Phase.WARM_UP
        return Phase.TRAINING if _is_within(0.02, throughput) else Phase.MEASURING

    def _throughput(self) -> Throughput | None:
        """Returns the throughput to compare, on the last node that has measured one."""
        every = self._metric.samples_per_evaluation or self.evaluated_samples / max(1, len(self._curve))
        for meter in reversed(self._meters):
            speed = meter.throughput()
            if self._metric.counts_evaluations:
                speed = with_evaluations(speed, meter.outside(), every) if every else None
            if speed is not None:
                return speed
        return None

    def has_known_speed(self) -> bool:
        """Returns True once the throughput is known to 10% and an evaluation has shown its memory peak."""
        throughput = self._throughput()
        return self.evaluated_samples > 0 and throughput is not None and _is_within(0.1, throughput)

    def incompleteness(self, planned: int) -> str | None:
        """Returns the reason why a training that ended by itself is incomplete, None if it is complete.

        `planned` is the number of samples it was configured for, 0 if none.
        """
        last, unit = self.evaluated_samples, self._metric.unit
        if self._samples < _WHOLE_SHARE * planned:
            return (
                f"the training ended after {self._samples:,} {unit}, and was planned for {planned:,}: the "
                "settings of the length do not decide when it ends"
            )
        is_near = last > 0 and self._steps_since_evaluation <= 4  # however short the training
        if last < _WHOLE_SHARE * self._samples and not is_near:
            return (
                f"the training ended after {self._samples:,} {unit}, and was last evaluated after "
                f"{last:,}: have it evaluated at its end"
            )
        return None

    def restart(self, node: str = "") -> None:
        """Notes that a new process starts or resumes the trial, maybe on another node than before."""
        if node != self._node:
            self._meters.append(Meter(self._prefetched, self._meter.training_s))
            self._node = node
        self._has_begun = False
        self._meter.restart()
        self._memory.restart()

    def count(self, record: Mapping[str, Any]) -> None:
        """Adds one record, with its timestamp in `at_s`, or the mark of a new attempt."""
        if is_mark(record):
            self.restart(str(record.get("node", "")))
            return
        is_evaluation = self._metric.name in record
        self._has_begun = True
        before, self._samples = self._samples, record["samples"]
        if SUSPENDED in record:
            self._meter.restart()
        self._meter.add(
            record["at_s"],
            self._samples,
            evaluation=is_evaluation,
            compiling=record.get(COMPILING) is True,
            queued=record.get(QUEUED) is True,
            steps=steps_of(record),
        )
        if not is_evaluation:
            self._steps += steps_of(record)
            self._largest_step = max(self._largest_step, (self._samples - before) / steps_of(record))
        # Evaluations, and checkpoints in the step after one, recur at the same height: that is not growth.
        is_step = not is_evaluation and self._steps_since_evaluation > 0
        self._memory.count(record, is_step=is_step)
        flops, samples = record.get(FLOPS), self._samples - before
        if is_step and isinstance(flops, Mapping) and samples > 0:
            self._flops.update({str(kind): int(units.number(n) or 0) for kind, n in flops.items()})
            self._flops_samples += samples
        self._parameters = int(amount(record, PARAMETERS)) or self._parameters
        if rate := amount(record, RATE):
            peak = max(rate, self._schedule.peak if self._schedule else 0.0)
            self._schedule = Schedule(peak, rate, before)
        self._steps_since_evaluation += steps_of(record)
        if not self._curve and (loss := amount(record, TRAIN_LOSS)):
            self._first_loss, self._last_loss = self._first_loss or loss, loss
        if is_evaluation:
            self._count_evaluation(record)
        for phase in PHASES if FLOPS not in record else ():  # counting FLOPs distorts the phases
            self._phase_s[phase] += amount(record, phase)

    def _count_evaluation(self, record: Mapping[str, Any]) -> None:
        """Takes the finite scores, and adds a point to the curve if the quality is one of them."""
        if not self._samples:  # the untrained model
            self._start = self._turned(units.number(record[self._metric.name]))
            return
        counted = {"at_s", self._metric.unit} - {"samples"}  # the unit duplicates "samples"
        numbers = {k: units.number(v) for k, v in record.items() if k not in counted}
        # Squares, sums and ratios of scores must be finite.
        self._scores = {k: v for k, v in numbers.items() if v is not None and abs(v) <= 1e30}
        self._raw_quality, self.evaluated_samples = record[self._metric.name], self._samples
        self._steps_since_evaluation = 0
        forget_from(self._curve, self._samples)
        del self._items[len(self._curve) :]
        if self.quality is not None:
            if self._start is None and not self._curve:
                # The first step's loss is comparable if the last one is like the loss of the evaluation.
                first, loss = self._first_loss, -self.quality
                is_alike = self._metric.minimize and abs(self._last_loss - loss) <= 0.25 * loss
                self._start = -first if is_alike and first > loss else None
            chance = self._turned(self._scores.get(f"{self._metric.name}_chance"))
            collapsed = record.get("collapsed") is True
            self._curve.append(
                Evaluation(self._samples, self._meter.training_s, self.quality, chance, collapsed)
            )
            items = record.get(f"{self._metric.name}_items")
            scores = list(map(units.number, items)) if isinstance(items, list) else []
            turned = [self._metric.turned(score) for score in scores if score is not None]
            is_complete = len(turned) == len(scores) <= 100_000  # finite numbers, and not too many
            self._items.append(tuple(turned) if is_complete else ())

    def conclude(self, verdict: Outcome) -> Outcome:
        """Returns `verdict`, turned into a failure if a completed trial lacks a finite quality or speed."""
        name, unit = self._metric.name, self._metric.unit
        if verdict.status is not Status.COMPLETED:
            return verdict
        if not self.evaluated_samples and self._raw_quality is None:
            fault = f"the workload ended without a record that has {name}"
        elif self.quality is None:
            value = units.quote(self._raw_quality)
            fault = f"{name} is not a number after {self.evaluated_samples:,} {unit}, got {value}"
        elif self._throughput() is None:
            fault = (
                "its throughput could not be measured: that takes two records without "
                f"{name}, the second with more {unit}; a trial may be too short"
            )
        else:
            return verdict
        return failures.failure(Failure.ERROR, fault)

    def live_measurement(self) -> Measurement:
        """Returns the figures that are shown every second, without those that are long or slow to compute."""
        return Measurement(
            throughput=self._throughput(),
            quality=self.quality,
            quality_samples=self.evaluated_samples,
            start=self._start,
            ended=self.ended,
            schedule=self._schedule,
            samples=self._samples,
            peak_memory_bytes=self._memory.peak_bytes(),
            flops_per_sample={kind: flops / self._flops_samples for kind, flops in self._flops.items()},
            node=self._node,
        )

    def measurement(self) -> Measurement:
        """Returns all that the records show; other fields, such as the device, stay empty."""
        brief, total_s = self.live_measurement(), sum(self._phase_s.values())
        # Each item's score is its mean over the last quarter of the evaluations, if all have the same items.
        last = [items for items in self._items if items][-max(1, len(self._curve) // 4) :]
        is_even = len({len(items) for items in last}) == 1
        return replace(
            brief,
            outside=self._meter.outside(),
            curve=tuple(self._curve),
            items=tuple(map(statistics.fmean, zip(*last, strict=True))) if is_even else (),
            trained_parameters=self._parameters or None,
            scores=self._scores,
            step_shares={p: s / total_s for p, s in self._phase_s.items()} if total_s else {},
            **self._memory.figures(self._samples),
        )


def _is_within(share: float, throughput: Throughput) -> bool:
    half = throughput.half_width_per_s
    return half is not None and half <= share * throughput.samples_per_s
