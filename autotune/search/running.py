"""The trials that are running: since when, and which of them share what they run on."""

from collections.abc import Callable, Collection
from dataclasses import replace

from autotune.core.measurement import Measurement
from autotune.core.trial import Outcome, Trial


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
