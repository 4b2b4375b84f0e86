"""Of a long training's records those that its figures need. Pure: the clock is in the records."""

from collections.abc import Iterable, Mapping
from typing import Any

from autotune.storage.records import COMPILING, STANDS_FOR, steps_of

_ALL_S = 3600.0  # after which no more are kept than one in that time; until then, more the sooner it is


class Thinner:
    """Lets every evaluation through, and of the steps in between after an hour one every `every_s` seconds.

    Before that it is one in as much less time as less has passed, so that a short training keeps its steps.
    The last step before an evaluation goes through as well, since the evaluation's time begins there; so does
    what was compiled, which no speed is measured across. What is left out is reported by the step after it:
    that has all samples so far, and says for how many steps it stands where that is more than itself.
    """

    def __init__(self, quality: str, every_s: float) -> None:
        self._quality, self._every_s = quality, every_s
        self._first_s: float | None = None
        self._last_s = float("-inf")
        self._held: dict[str, Any] | None = None
        self._samples = self._steps = 0  # of all records so far; since the last one that went through

    def __call__(self, records: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        through: list[dict[str, Any]] = []
        for record in records:
            if self._is_break(record):
                through += self.rest()
            self._steps += steps_of(record) if record["samples"] > self._samples else 0
            self._samples, self._held = record["samples"], record
            if self._is_break(record) or self._is_due(record["at_s"]):
                self._last_s = record["at_s"]
                through += self.rest()
        return through

    def _is_due(self, at_s: float) -> bool:
        return at_s - self._last_s >= self._apart_s(at_s)

    def _apart_s(self, at_s: float) -> float:
        if self._first_s is None:
            self._first_s = at_s
        return self._every_s * min(1.0, (at_s - self._first_s) / _ALL_S)

    def _is_break(self, record: Mapping[str, Any]) -> bool:
        return self._quality in record or record.get(COMPILING) is True

    def rest(self) -> list[dict[str, Any]]:
        """The step that was held back last, where no other one has come since."""
        held, steps = self._held, self._steps
        self._held, self._steps = None, 0
        if held is None:
            return []
        return [{**held, STANDS_FOR: steps} if steps > 1 else held]
