"""Validates the records of a workload: JSON values, and a sample count that never decreases."""

import math
from collections.abc import Mapping
from typing import Any

from autotune.core import units
from autotune.core.record_names import OWN
from autotune.inside.site.autotune_wire import unwrapped

_NON_FINITE_LOSSES = 3
_MOST_SAMPLES = 2**53  # up to here, a float represents every integer exactly


class _DivergedError(FloatingPointError):
    """The workload keeps yielding losses that are not finite."""


class Check:
    """Validates records, and raises once the training loss has been non-finite several times in a row.

    A record is a mapping that counts its work under the key `unit`. The checked copy has that count under
    "samples" too, so that readers need not know the unit.
    """

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self.records = 0
        self._samples = 0
        self._non_finite = 0

    def __call__(self, record: object) -> dict[str, Any]:
        if not isinstance(record, Mapping):
            raise TypeError(f"a record must be a mapping, got {type(record).__name__}")
        yielded = {key: value for key, value in record.items() if key not in OWN}
        plain = {str(key): unwrapped(value) for key, value in yielded.items()}
        what, samples = f"a record's {self._unit}", plain.get(self._unit)
        if not isinstance(samples, int) or isinstance(samples, bool):
            raise TypeError(f"{what} must be an int, got {units.quote(samples)}")
        if not 0 <= samples <= _MOST_SAMPLES:
            raise ValueError(f"{what} must be from 0 to 2**53, got {units.quote(samples)}")
        if samples < self._samples:
            raise ValueError(f"{what} must not decrease, got {samples} after {self._samples}")
        self._samples = plain["samples"] = samples
        self.records += 1
        self._follow_loss(plain)
        return plain

    def _follow_loss(self, record: Mapping[str, Any]) -> None:
        loss = record.get("train_loss")
        # Such a workload skips bad steps itself, and fails by itself if there are too many.
        if "bad_steps" in record:
            return
        if isinstance(loss, float):
            self._non_finite = 0 if math.isfinite(loss) else self._non_finite + 1
        if self._non_finite >= _NON_FINITE_LOSSES:
            raise _DivergedError(
                f"train_loss was {loss} {self._non_finite} times in a row, at {self._samples:,} {self._unit}"
            )
