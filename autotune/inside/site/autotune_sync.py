"""When several processes tell each other how far they are. Pure: no torch, no clock."""


class SyncSchedule:
    """At which steps they do, until the next evaluation is due: each time they wait for the GPU.

    That is after half of the steps that are left by the pace up to now, and so at the very step in the end,
    as long as the pace does not double.
    """

    def __init__(self, every: int) -> None:
        self._every = every
        self._step = self._seen = self._next = 0

    def is_due(self, step: int) -> bool:
        return step >= self._next

    def synced(self, step: int, seen: int) -> None:
        """They have done so at a `step`, when so much had been `seen` in all."""
        pace = (seen - self._seen) / max(1, step - self._step)
        left = self._every - seen % self._every
        self._step, self._seen = step, seen
        self._next = step + (max(1, int(left / pace / 2)) if pace > 0 else 1)
