"""Trials that something kills without a word: how often, and when it is enough. Pure bookkeeping."""

from autotune.core.trial import Failure, Outcome, Shortage, Status

MOST = 3  # in a row: what is killed wherever it goes would be killed for ever


class Losses:
    """Counts how far every trial had come when it was killed, and how often it got no further."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, int]] = {}

    def add(self, number: int, come_to: int, reason: str, *, out_of_memory: bool) -> Outcome | None:
        """Counts a kill of trial `number`, evaluated after `come_to` samples: how it has ended, if it has.

        It runs again, unless it was killed for the machine's memory, or three times without an evaluation in
        between.
        """
        before, times = self._known.get(number, (0, 0))
        times = 1 if come_to > before else times + 1
        self._known[number] = (come_to, times)
        if out_of_memory:
            return Outcome(Status.FAILED, Failure.OOM, reason, Shortage.MACHINE)
        return (
            Outcome(Status.FAILED, Failure.LOST, f"{reason}; {times} times in a row")
            if times >= MOST
            else None
        )
