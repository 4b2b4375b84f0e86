"""Tracks running trials: when they started, which of them share the machine, how often each was killed."""

from collections.abc import Callable, Collection
from dataclasses import replace

from autotune.core.measurement import Measurement
from autotune.core.trial import Failure, Outcome, Shortage, Status, Trial

MOST = 3  # kills in a row, after which a trial is given up


class RunningTrials:
    """Trials between their start and their end. `clock` is in seconds.

    A trial counts as shared once another one has run alongside it; `shared` has the trials that were shared
    before an interruption.
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
        """Returns the running trial with that number, None if it is not running."""
        return self._trials.get(number)

    @property
    def shared(self) -> tuple[int, ...]:
        """The numbers of the running trials that others run alongside, or have."""
        return tuple(sorted(self._trials.keys() & self._shared))

    @property
    def is_closed(self) -> bool:
        """True while a trial is running that must run alone."""
        return any(trial.runs_alone for trial in self._trials.values())

    def begin(self, trial: Trial) -> set[int]:
        """Adds a starting trial; returns the numbers of the trials that now begin to share the machine."""
        self._trials[trial.number] = trial
        self._started_s[trial.number] = self._clock()
        newly = self._trials.keys() - self._shared if len(self._trials) > 1 else set()
        self._shared |= newly
        return newly

    def take(self, number: int) -> Trial | None:
        """Removes and returns an interrupted trial; None if it was not running."""
        return self._trials.pop(number, None)

    def end(self, number: int, outcome: Outcome, measurement: Measurement) -> Trial | None:
        """Removes and returns a trial that has ended, with its results; None if it was not running."""
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
    """Counts how often each trial was killed without progress in between."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, int]] = {}

    def add(self, number: int, samples: int, reason: str, *, out_of_memory: bool) -> Outcome | None:
        """Counts a kill of a trial last evaluated after `samples`; returns its final outcome, if it has one.

        None if it runs again, which it does unless the machine ran out of memory, or this was the third kill
        without an evaluation in between.
        """
        before, times = self._known.get(number, (0, 0))
        times = 1 if samples > before else times + 1
        self._known[number] = (samples, times)
        if out_of_memory:
            return Outcome(Status.FAILED, Failure.OOM, reason, Shortage.MACHINE)
        if times < MOST:
            return None
        return Outcome(Status.FAILED, Failure.LOST, f"{reason}; {times} times in a row")
