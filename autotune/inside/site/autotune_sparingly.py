"""When several processes tell each other how far they are. Pure: no torch, no clock."""


class Sparingly:
    """At which steps several processes tell each other what they have seen: to do so waits for the GPU.

    At half of the steps that are left until the next evaluation, by the pace up to now, they do so again.
    """

    def __init__(self, every: int) -> None:
        self._every = every
        self._step = self._seen = self._again = 0

    def is_due(self, step: int) -> bool:
        return step >= self._again

    def heard(self, step: int, seen: int) -> None:
        """At a `step` so much was `seen` in all."""
        pace = (seen - self._seen) / max(1, step - self._step)
        left = self._every - seen % self._every
        self._step, self._seen = step, seen
        self._again = step + (max(1, int(left / pace / 2)) if pace > 0 else 1)
