"""The trials that are running: since when, which share what they run on, and how often each was killed."""

from collections.abc import Callable, Collection
from dataclasses import replace

from autotune.core.measurement import Measurement
from autotune.core.trial import Failure, Outcome, Shortage, Status, Trial

MOST = 3  # in a row: what is killed wherever it goes would be killed for ever


class RunningTrials:
    """Trials between their start and their end. `clock` is in seconds.

    A trial that has run alongside another one at any time has shared the machine; `shared` are those known to
    have done so before.
    """

    def __init__(self, clock: Callable[[], float], shared: Collection[int] = ()) -> None:
        self._clock, self._shared = clock, set(shared)
        self._trials: dict[int, Trial] = {}
        self._started_s: dict[int, float] = {}

    def __len__(self) -> int:
        return len(self._trials)

    def trials(self) -> list[Trial]:
        return list(self._trials.values())

    def get(self, number: int) -> Trial | None:
        """Returns the running trial of that number, None if it does not run."""
        return self._trials.get(number)

    @property
    def is_closed(self) -> bool:
        """Returns True while one is running that must run alone."""
        return any(trial.runs_alone for trial in self._trials.values())

    def begin(self, trial: Trial) -> set[int]:
        """Notes that `trial` runs; returns the numbers of those that share only from now on."""
        self._trials[trial.number] = trial
        self._started_s[trial.number] = self._clock()
        newly = self._trials.keys() - self._shared if len(self._trials) > 1 else set()
        self._shared |= newly
        return newly

    def take(self, number: int) -> Trial | None:
        """Removes and returns a trial that was broken off; None if it did not run."""
        return self._trials.pop(number, None)

    def end(self, number: int, outcome: Outcome, measurement: Measurement) -> Trial | None:
        """Removes and returns a trial that has ended, with what it took; None if it did not run."""
        trial = self.take(number)
        if trial is None:
            return None
        return replace(
            trial,
            outcome=outcome,
            measurement=replace(measurement, shared=number in self._shared),
            seconds=self._clock() - self._started_s.pop(number),
        )


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
