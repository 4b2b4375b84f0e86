"""A trial's records, counted as they come: what they show so far. Pure: the clock is in the records."""

import statistics
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Any, Protocol

from autotune.core import units
from autotune.core.settings import Config
from autotune.core.trial import (
    PHASES,
    Evaluation,
    Failure,
    Measurement,
    Outcome,
    Schedule,
    Status,
    Throughput,
)
from autotune.judging.measure import Meter, prefetched_steps, with_evaluations
from autotune.space.sections import turned
from autotune.storage.records import COMPILING, FLOPS, QUEUED, RATE, TRAIN_LOSS, is_mark, steps_of
from autotune.trials import failures
from autotune.trials.peaks import CountedFlops, HeldMemory
from autotune.trials.step_flops import PARAMETERS

_MOST_ITEMS = 100_000  # whose scores are kept
_LARGEST = 1e30  # of a quality: its squares, sums and ratios are numbers, too
_OVERDUE_TIMES, _OVERDUE_STEPS = 3, 100  # steps, too: a large batch is beyond the end with its first one
_SURE_SHARE = 0.02  # of a throughput: an interval as narrow as that is one to rely on
_KNOWN_SHARE = 0.1  # one that says what is worth a race, which decides the rest
_SILENT_STEPS, _SILENT_S = 10, 2.0  # seconds, too: a step of milliseconds is late for any reason
_LEAST_BYTES = 2**20  # no training takes less: where the host shows less, the work was done out of sight
_ALIKE = 0.25  # of a loss, by which that of a step may differ from that of the evaluation after it
_WHOLE_SHARE = 0.95  # of a training, that its last evaluation must have seen; an epoch may drop a batch


class Phase(StrEnum):
    """What a running trial does."""

    START = "start"
    WARM_UP = "warm-up"
    MEASURING = "measuring"
    TRAINING = "training"
    EVALUATING = "evaluating"
    RACING = "racing"


class Counted(Protocol):
    """An `Order`, the `Plan` of a whole training, or a `Counting`: it says how records are counted."""

    @property
    def quality(self) -> str: ...
    @property
    def minimize(self) -> bool: ...
    @property
    def unit(self) -> str: ...
    @property
    def counts_evaluations(self) -> bool: ...
    @property
    def samples_per_evaluation(self) -> int | None: ...


class Progress:
    """Shows what a trial with `settings` has done, from its records, counted as `of` says.

    Records have the workload's own sign. From here on higher is better: a quality to minimize, its chance
    and its items change their sign when they become a point of the curve, and nowhere else.
    """

    def __init__(self, of: Counted, settings: Config) -> None:
        self._quality, self._minimize, self._unit = of.quality, of.minimize, of.unit
        self._counts_evaluations, self._every = of.counts_evaluations, of.samples_per_evaluation
        self._meter = Meter(prefetched_steps(settings))
        self._samples = self._evaluated_samples = self._steps_since_evaluation = 0
        self._has_begun = self._ended = False
        self._start: float | None = None
        self._first_loss = self._last_loss = 0.0  # of the steps before the first evaluation
        self._schedule: Schedule | None = None
        self._found: object = None  # what the last evaluation yielded for a quality
        self._scores: dict[str, float] = {}
        self._curve: list[Evaluation] = []
        self._items: list[tuple[float, ...]] = []
        self._own_bytes = self._script_bytes = self._children_bytes = 0
        self._reserved_bytes = self._context_bytes = 0
        self._peak = HeldMemory()
        self._phase_s = dict.fromkeys(PHASES, 0.0)
        self._flops = CountedFlops()
        self._parameters = 0

    @property
    def evaluated_samples(self) -> int:
        """How far the trial had come at its last evaluation."""
        return self._evaluated_samples

    @property
    def curve(self) -> tuple[Evaluation, ...]:
        return tuple(self._curve)

    @property
    def quality(self) -> float | None:
        """What the last evaluation found, higher is better; None where that was no number."""
        return self._turned(self._scores.get(self._quality))

    def _turned(self, value: float | None) -> float | None:
        return None if value is None else turned(value, minimize=self._minimize)

    def is_overdue(self, samples: int) -> bool:
        """Whether a trial of so many `samples` has run far beyond its end without being evaluated."""
        return (
            self._evaluated_samples < samples
            and self._samples >= _OVERDUE_TIMES * samples
            and self._steps_since_evaluation >= _OVERDUE_STEPS
        )

    def phase(self, silent_s: float) -> Phase:
        """What a trial does that has yielded nothing for `silent_s`.

        No record says that an evaluation has begun: silence far longer than a step is taken for one. A
        checkpoint that is written slowly, a machine that was suspended, or a hang looks the same, and an
        evaluation as short as a few steps is not seen.
        """
        throughput, step_s = self._meter.throughput(), self._meter.recent_step_s()
        if not self._has_begun:
            return Phase.START
        if step_s is not None and silent_s > max(_SILENT_STEPS * step_s, _SILENT_S):
            return Phase.EVALUATING
        if throughput is None:
            return Phase.WARM_UP
        return Phase.TRAINING if _is_within(_SURE_SHARE, throughput) else Phase.MEASURING

    def _throughput(self) -> Throughput | None:
        """What competes: the steady state, with evaluations where they are part of the speed."""
        steady = self._meter.throughput()
        if not self._counts_evaluations:
            return steady
        every = self._every or self._evaluated_samples / max(1, len(self._curve))
        return with_evaluations(steady, self._meter.outside(), every) if every else None

    def has_known_speed(self) -> bool:
        """Whether the throughput is known to 10%, and what an evaluation takes of the memory was seen."""
        throughput = self._throughput()
        return self._evaluated_samples > 0 and throughput is not None and _is_within(_KNOWN_SHARE, throughput)

    def why_not_whole(self, planned: int) -> str | None:
        """Returns why a training that has ended by itself is not a whole one, None if it is.

        It was `planned` for so many samples, 0 if for none.
        """
        seen, unit = self._evaluated_samples, self._unit
        if self._samples < _WHOLE_SHARE * planned:
            return (
                f"the training ended after {self._samples} {unit}, and was planned for {planned}: the "
                "settings of the length do not decide when it ends"
            )
        if seen < _WHOLE_SHARE * self._samples:
            return (
                f"the training ended after {self._samples} {unit}, and was last evaluated after {seen}: have "
                "it evaluated at its end"
            )
        return None

    def end(self) -> None:
        """Notes that the workload has come to its own end."""
        self._ended = True

    def restart(self) -> None:
        """A new process begins, or resumes, the trial."""
        self._has_begun = False
        self._meter.restart()
        self._peak.restart()

    def count(self, record: Mapping[str, Any]) -> None:
        """Adds one record, with the moment it came at in `at_s`, or the mark of a new attempt."""
        if is_mark(record):
            self.restart()
            return
        is_evaluation = self._quality in record
        self._has_begun = True
        before, self._samples = self._samples, record["samples"]
        self._meter.add(
            record["at_s"],
            self._samples,
            evaluation=is_evaluation,
            compiling=record.get(COMPILING) is True,
            queued=record.get(QUEUED) is True,
            steps=steps_of(record),
        )
        # A checkpoint comes with the step after an evaluation, and both come again.
        is_step = not is_evaluation and self._steps_since_evaluation > 0
        self._hold(record, is_step=is_step)
        if is_step and FLOPS in record:
            self._flops.count(record[FLOPS], self._samples - before)
        self._parameters = int(_amount(record, PARAMETERS)) or self._parameters
        if rate := _amount(record, RATE):
            peak = max(rate, self._schedule.peak if self._schedule else 0.0)
            self._schedule = Schedule(peak, rate, before)
        self._steps_since_evaluation += steps_of(record)
        if not self._curve and (loss := _amount(record, TRAIN_LOSS)):
            self._first_loss, self._last_loss = self._first_loss or loss, loss
        if is_evaluation:
            self._evaluated(record)
        for phase in PHASES if FLOPS not in record else ():  # counting them takes time
            self._phase_s[phase] += _amount(record, phase)

    def _hold(self, record: Mapping[str, Any], *, is_step: bool) -> None:
        """Adds up the peaks of the process and of its descendants; on a GPU its allocator's alone counts.

        A script that reports its own peak is one of the descendants.
        """
        self._own_bytes = max(self._own_bytes, int(_amount(record, "memory_peak_bytes")))
        self._script_bytes = max(self._script_bytes, int(_amount(record, "memory_script_bytes")))
        seen_bytes = int(_amount(record, "memory_children_bytes"))
        self._children_bytes = max(self._children_bytes, seen_bytes, self._script_bytes)
        self._reserved_bytes = max(self._reserved_bytes, int(_amount(record, "memory_peak_reserved_bytes")))
        self._context_bytes = max(self._context_bytes, int(_amount(record, "memory_context_bytes")))
        beside = 0 if self._reserved_bytes else self._children_bytes
        self._peak.count(self._samples, self._own_bytes + beside, is_step=is_step)

    def _unless_unseen(self, held_bytes: int) -> int | None:
        """What was held; None where that is too little to be all that there was."""
        return held_bytes if held_bytes and (self._reserved_bytes or held_bytes >= _LEAST_BYTES) else None

    def _evaluated(self, record: Mapping[str, Any]) -> None:
        """Takes the scores that are numbers, and a point of the curve where the quality is one."""
        if not self._samples:  # the model as it was made
            self._start = self._turned(units.number(record[self._quality]))
            return
        counted = {"at_s", self._unit} - {"samples"}  # the unit is there as samples, too
        numbers = {k: units.number(v) for k, v in record.items() if k not in counted}
        self._scores = {k: v for k, v in numbers.items() if v is not None and abs(v) <= _LARGEST}
        self._found, self._evaluated_samples = record[self._quality], self._samples
        self._steps_since_evaluation = 0
        while self._curve and self._curve[-1].samples >= self._samples:
            self._curve.pop()  # a trial resumed from its checkpoint yields what came after it again
            self._items.pop()
        if self.quality is not None:
            if self._start is None and not self._curve:
                self._start = self._start_by_steps(-self.quality)
            chance = self._turned(self._scores.get(f"{self._quality}_chance"))
            collapsed = record.get("collapsed") is True
            self._curve.append(
                Evaluation(self._samples, self._meter.training_s, self.quality, chance, collapsed)
            )
            items = _numbers(record.get(f"{self._quality}_items"))
            self._items.append(tuple(turned(value, minimize=self._minimize) for value in items))

    def _start_by_steps(self, first: float) -> float | None:
        """Returns the loss of the first step, as a quality, if the `first` evaluation is of the same loss."""
        is_alike = self._minimize and abs(self._last_loss - first) <= _ALIKE * first
        return -self._first_loss if is_alike and self._first_loss > first else None

    def _mean_items(self) -> tuple[float, ...]:
        """What each item was scored, on average over the evaluations that the trial's end is made of."""
        last = [items for items in self._items if items][-max(1, len(self._curve) // 4) :]
        is_even = last and len({len(items) for items in last}) == 1
        return tuple(statistics.fmean(values) for values in zip(*last, strict=True)) if is_even else ()

    def concluded(self, verdict: Outcome) -> Outcome:
        """`verdict`, but that a trial cannot be complete whose quality or speed is missing, or no number."""
        if verdict.status is not Status.COMPLETED:
            return verdict
        if reason := self._lack():
            return failures.failed(Failure.ERROR, reason)
        return verdict

    def _lack(self) -> str | None:
        if not self._evaluated_samples and self._found is None:
            return f"the workload ended without a record that has {self._quality}"
        if self.quality is None:
            found = units.shown(self._found)
            return (
                f"{self._quality} is not a number after {self._evaluated_samples} {self._unit}: got {found}"
            )
        if self._throughput() is None:
            return (
                "its throughput could not be measured: that takes two records without "
                f"{self._quality}, the second with more {self._unit}; a trial may be too short"
            )
        return None

    def at_a_glance(self) -> Measurement:
        """What is shown every second, while a trial runs: without what is long, or takes long to find."""
        return Measurement(
            throughput=self._throughput(),
            quality=self.quality,
            quality_samples=self.evaluated_samples,
            start=self._start,
            ended=self._ended,
            schedule=self._schedule,
            samples=self._samples,
            peak_memory_bytes=self._unless_unseen(self._peak.held_bytes),
            flops_per_sample=self._flops.per_sample(),
        )

    def measurement(self) -> Measurement:
        """What the records show; what only the outside knows, such as the device, is left empty."""
        shown, total_s = self.at_a_glance(), sum(self._phase_s.values())
        has_peak = shown.peak_memory_bytes is not None
        return replace(
            shown,
            outside=self._meter.outside(),
            curve=tuple(self._curve),
            items=self._mean_items(),
            own_peak_bytes=self._unless_unseen(max(self._own_bytes, self._script_bytes)),
            peak_reserved_bytes=self._reserved_bytes or None,
            context_bytes=self._context_bytes or None,
            memory_is_rising=has_peak and self._peak.is_rising(self._samples),
            memory_slope=self._peak.slope() if has_peak else None,
            trained_parameters=self._parameters or None,
            scores=self._scores,
            step_shares={p: s / total_s for p, s in self._phase_s.items()} if total_s else {},
        )


def _is_within(share: float, throughput: Throughput) -> bool:
    half = throughput.half_width_per_s
    return half is not None and half <= share * throughput.samples_per_s


def _numbers(values: object) -> tuple[float, ...]:
    """The numbers of a list, nothing where one of them is none."""
    found = [units.number(value) for value in values] if isinstance(values, list) else []
    numbers = tuple(value for value in found if value is not None)
    return numbers if len(numbers) == len(found) <= _MOST_ITEMS else ()


def _amount(record: Mapping[str, Any], name: str) -> float:
    """A figure that cannot be negative, 0 where it is missing or no number."""
    value = record.get(name)
    return 0.0 if value is None else max(0.0, units.number(value) or 0.0)
