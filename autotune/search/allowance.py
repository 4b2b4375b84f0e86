"""What a search may spend: so many configurations, and so many seconds, its earlier runs included."""

import math
from collections.abc import Callable
from dataclasses import replace

from autotune.storage.study_file import Plan

_MOST_FOR_CONFIRMING = 0.5  # of a time limit


class Allowance:
    """The `plan` of a search as `clock`, in seconds, runs on from now."""

    def __init__(self, plan: Plan, clock: Callable[[], float]) -> None:
        self._plan, self._clock, self._begun_s = plan, clock, clock()
        self._limit_s = math.inf if plan.time_s is None else plan.time_s

    @property
    def spent_s(self) -> float:
        return self._plan.spent_s + self._clock() - self._begun_s

    @property
    def is_time_up(self) -> bool:
        return self.spent_s > self._limit_s

    def plan(self) -> Plan:
        """The plan with what is spent by now."""
        return replace(self._plan, spent_s=self.spent_s)

    def trials_left(self, searched: int) -> int:
        """How many configurations may still be tried after so many."""
        return max(0, self._plan.trials - searched)

    def has_time_for(self, seconds: float) -> bool:
        """Whether something that takes so long would end in time."""
        return self.spent_s + seconds <= self._limit_s

    def has_time_to_search(self, confirming_s: float) -> bool:
        """Returns True if another trial may begin, and confirming what was found takes so long.

        At most half of all time is kept for that.
        """
        return self.has_time_for(min(confirming_s, _MOST_FOR_CONFIRMING * self._limit_s))
