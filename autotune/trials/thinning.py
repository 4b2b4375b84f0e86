"""Thins out the records of a long training. Pure: timestamps come with the records."""

from collections.abc import Iterable, Mapping
from typing import Any

from autotune.core.record_names import STANDS_FOR
from autotune.storage.records import is_break, steps_of

_ALL_S = 3600.0  # the interval between kept steps grows from 0 to `every_s` over this time


class Thinner:
    """Passes every evaluation, and one step every `every_s` seconds.

    That interval grows from 0 during the first hour, so that a short training keeps its steps. Two more kinds
    of step always pass: the last one before an evaluation, where the evaluation's time begins, and one that
    compiled or was suspended, across which no speed is measured. A passed step has all samples so far, and
    the number of steps that it stands for if that is more than one.
    """

    def __init__(self, quality: str, every_s: float) -> None:
        self._quality, self._every_s = quality, every_s
        self._first_s: float | None = None
        self._last_s = float("-inf")
        self._held: dict[str, Any] | None = None
        self._samples = self._steps = 0  # of all records so far; since the last one that went through

    def __call__(self, records: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        passed: list[dict[str, Any]] = []
        for record in records:
            if self._is_break(record):
                passed += self.rest()
            self._steps += steps_of(record) if record["samples"] > self._samples else 0
            self._samples, self._held = record["samples"], record
            at_s = record["at_s"]
            self._first_s = at_s if self._first_s is None else self._first_s
            apart_s = self._every_s * min(1.0, (at_s - self._first_s) / _ALL_S)
            if self._is_break(record) or at_s - self._last_s >= apart_s:
                self._last_s = at_s
                passed += self.rest()
        return passed

    def _is_break(self, record: Mapping[str, Any]) -> bool:
        return self._quality in record or is_break(record)

    def rest(self) -> list[dict[str, Any]]:
        """Returns the step that is held back, if there is one."""
        record, steps = self._held, self._steps
        self._held, self._steps = None, 0
        if record is None:
            return []
        return [{**record, STANDS_FOR: steps} if steps > 1 else record]
