"""Tracks running trials: when they started, and which of them share the machine."""

from collections.abc import Callable, Collection
from dataclasses import replace

from autotune.core.measurement import Measurement
from autotune.core.trial import Outcome, Trial


class RunningTrials:
    """Trials between their start and their end. `clock` is in seconds.

    A trial counts as shared once another one has run alongside it, or had before an interruption (`shared`).
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
