"""Puts short steps together: every record takes time from the training on its way to the driver. Pure."""

from autotune.inside.messages import Stamped

# Of a record, as `storage.records` has them.
QUEUED, COMPILING, FLOPS = "is_queued", "is_compiling", "step_flops"


_APART_S = 0.05
_FIRST_STEPS = 200  # each in a record of its own: a trial may be short


class Merger:
    """Puts consecutive steps together until 50 ms have passed since the record before them.

    No step is put together with an evaluation. A step whose end is not known, because the GPU had not done
    it, ends with the next one whose end is.
    """

    def __init__(self) -> None:
        self._steps = 0
        self._held: Stamped | None = None
        self._last_s = float("-inf")  # of the record that was given out last

    def add(self, record: Stamped, *, is_step: bool) -> list[Stamped]:
        """Returns what can be given out now that `record` has come, in order."""
        self._steps += is_step
        is_alone = not is_step or self._steps <= _FIRST_STEPS or COMPILING in record or FLOPS in record
        has_settled = self._held is not None and QUEUED not in self._held
        before = self.rest() if is_alone or (has_settled and QUEUED in record) else []
        self._held = _merged(self._held, record)
        is_due = is_alone or record.at_s - self._last_s >= _APART_S
        return [*before, *(self.rest() if is_due else [])]

    def rest(self) -> list[Stamped]:
        """Returns the steps that are still held back."""
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
