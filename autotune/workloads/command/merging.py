"""Merges records of short steps, because sending each one costs training time. Pure."""

from autotune.core.record_names import COMPILING, FLOPS, QUEUED
from autotune.inside.messages import Stamped

_APART_S = 0.05
_FIRST_STEPS = 200  # not merged: a trial may be short


class Merger:
    """Merges consecutive steps until 50 ms have passed since the previous record.

    Never merges a step with an evaluation. A step still queued on the GPU is merged with the next one whose
    end is known.
    """

    def __init__(self) -> None:
        self._steps = 0
        self._held: Stamped | None = None
        self._last_s = float("-inf")  # of the last released record

    def add(self, record: Stamped, *, is_step: bool) -> list[Stamped]:
        """Adds a record and returns those that are complete, in order."""
        self._steps += is_step
        is_alone = not is_step or self._steps <= _FIRST_STEPS or COMPILING in record or FLOPS in record
        has_settled = self._held is not None and QUEUED not in self._held
        before = self.rest() if is_alone or (has_settled and QUEUED in record) else []
        self._held = _merged(self._held, record)
        is_due = is_alone or record.at_s - self._last_s >= _APART_S
        return [*before, *(self.rest() if is_due else [])]

    def rest(self) -> list[Stamped]:
        """Returns the steps still held back."""
        held, self._held = self._held, None
        if held is None:
            return []
        self._last_s = held.at_s
        return [held]


def _merged(held: Stamped | None, record: Stamped) -> Stamped:
    if held is None:
        return record
    settled = {name: value for name, value in held.items() if name != QUEUED}
    return Stamped({**settled, **record}, record.at_s, held.steps + record.steps)
