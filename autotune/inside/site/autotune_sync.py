"""Schedules when processes synchronize their progress. Pure: no torch, no clock."""


class SyncSchedule:
    """The steps at which processes synchronize before the next evaluation, since each waits for the GPU.

    The next one is after half of the steps that are left at the current pace, so that the last one is exactly
    at the evaluation unless the pace doubles.
    """

    def __init__(self, every: int) -> None:
        self._every = every
        self._step = self._seen = self._next = 0

    def is_due(self, step: int) -> bool:
        return step >= self._next

    def synced(self, step: int, seen: int) -> None:
        """Notes a synchronization at `step`, up to which `seen` samples or tokens were trained."""
        pace = (seen - self._seen) / max(1, step - self._step)
        left = self._every - seen % self._every
        self._step, self._seen = step, seen
        self._next = step + (max(1, int(left / pace / 2)) if pace > 0 else 1)
