"""A trial's records, counted as they come: what they show so far. Pure: the clock is in the records."""

import math
from collections.abc import Mapping
from typing import Any

from autotune import failures
from autotune.measure import Meter, prefetched_steps
from autotune.trial import Config, Evaluation, Failure, Measurement, Outcome, Status

_PHASES = ("data_s", "forward_s", "backward_s", "optimizer_s")


class Progress:
    """What a trial with `settings` has shown; a record that has `quality` is an evaluation's."""

    def __init__(self, quality: str, settings: Config) -> None:
        self._quality = quality
        self._meter = Meter(prefetched_steps(settings))
        self._samples = 0
        self._scores: dict[str, float] = {}
        self._curve: list[Evaluation] = []
        self._peak_bytes = self._allocated_bytes = 0
        self._phase_s = dict.fromkeys(_PHASES, 0.0)

    @property
    def evaluated_samples(self) -> int:
        """How far the trial had come at its last evaluation."""
        return self._curve[-1].samples if self._curve else 0

    @property
    def quality(self) -> float | None:
        """What the last evaluation found."""
        return self._scores.get(self._quality)

    def restart(self) -> None:
        """A new process begins, or goes on with, the trial."""
        self._meter.restart()

    def count(self, record: Mapping[str, Any]) -> None:
        """Adds one record, with the moment it came at in `at_s`, or the mark of a new attempt."""
        if "attempt" in record:
            self.restart()
            return
        is_evaluation = self._quality in record
        self._samples = record["samples"]
        self._meter.add(record["at_s"], self._samples, evaluation=is_evaluation)
        self._peak_bytes = max(self._peak_bytes, int(record.get("memory_peak_bytes") or 0))
        self._allocated_bytes = max(
            self._allocated_bytes, int(record.get("memory_peak_allocated_bytes") or 0)
        )
        if is_evaluation:
            self._evaluated(record)
        for phase in _PHASES:
            self._phase_s[phase] += float(record.get(phase) or 0.0)

    def _evaluated(self, record: Mapping[str, Any]) -> None:
        self._scores = {k: float(v) for k, v in record.items() if _is_number(v) and k != "at_s"}
        quality = self._scores.get(self._quality, math.nan)
        if self.evaluated_samples == self._samples and self._curve:
            self._curve.pop()  # a trial that goes on from its checkpoint yields its last evaluation again
        self._curve.append(Evaluation(self._samples, self._meter.training_s, quality))

    def judge(self, verdict: Outcome) -> Outcome:
        """`verdict`, but that a trial cannot be complete whose quality is missing, or is no number."""
        if verdict.status is not Status.COMPLETED:
            return verdict
        if not self._curve:
            reason = f"the workload ended without a record that has {self._quality}"
            return failures.failed(Failure.ERROR, reason)
        if not math.isfinite(self._curve[-1].quality):
            reason = f"{self._quality} is not a number after {self.evaluated_samples} samples"
            return failures.failed(Failure.ERROR, reason)
        return verdict

    def measurement(self) -> Measurement:
        """What the records show; what only the outside knows, such as the device, is left empty."""
        total_s = sum(self._phase_s.values())
        return Measurement(
            throughput=self._meter.throughput(),
            quality=self.quality,
            quality_samples=self.evaluated_samples,
            curve=tuple(self._curve),
            samples=self._samples,
            peak_memory_bytes=self._peak_bytes or None,
            peak_allocated_bytes=self._allocated_bytes or None,
            scores=self._scores,
            step_shares={p: s / total_s for p, s in self._phase_s.items()} if total_s else {},
        )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
