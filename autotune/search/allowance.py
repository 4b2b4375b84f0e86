"""What a search may spend: so many configurations, and so many seconds, its earlier runs included."""

import math
from collections.abc import Callable
from dataclasses import replace

from autotune.core import units
from autotune.judging.decisions import confirm, pilot
from autotune.judging.decisions.history import History
from autotune.storage.study_file import Plan

_A_DOZEN = 12
_SEEDS = 3  # of a winner and of the baseline: what usually decides, though more may be allowed
_SHORTEST = 0.25  # of its length, that a training is tried at
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
        """Returns how many configurations may still be tried after so many."""
        return max(0, self._plan.trials - searched)

    def has_time_for(self, seconds: float) -> bool:
        """Returns True if something that takes so long would end in time."""
        return self.spent_s + seconds <= self._limit_s

    def has_time_to_search(self, confirming_s: float) -> bool:
        """Returns True if another trial may begin, and confirming what was found takes so long.

        At most half of all time is kept for that.
        """
        return self.has_time_for(min(confirming_s, _MOST_FOR_CONFIRMING * self._limit_s))

    def share(self, history: History) -> float:
        """Returns the share of its length that a training is tried at: 1, or less if time allows few."""
        each_s, left_s = confirm.trial_s(history), self._limit_s - self.spent_s - confirm.most_s(history)
        enough = each_s * max(0, _A_DOZEN - len(history.searched))
        return 1.0 if not enough or enough <= left_s else max(_SHORTEST, left_s / enough)


def forecast(asked: History, plan: Plan, slots: int) -> str | None:
    """`A trial takes 1m 37s: 20m is enough for about 7 trials and confirming a winner; 40m recommended.`

    None while the baseline has not completed, and if the time is enough for a dozen trials, or all. So many
    `slots` run at a time.
    """
    each_s = confirm.trial_s(asked)
    if plan.time_s is None or plan.trials == 1 or not each_s:
        return None
    confirming_s = confirm.confirming_s(asked, min(_SEEDS, asked.space.budget.repeats))
    fixed_s = plan.spent_s + confirming_s + pilot.is_due(asked) * each_s
    enough_s = fixed_s + math.ceil((min(_A_DOZEN, plan.trials) - 1) / slots) * each_s
    if plan.time_s >= enough_s:
        return None
    more = slots * max(0, math.floor((plan.time_s - fixed_s) / each_s))
    reach = f"enough for about {1 + more} trials" if more else "probably too short for a second trial"
    trial, limit = units.format_seconds(math.ceil(each_s)), units.exact(plan.time_s)
    confirming = " and confirming a winner" if confirming_s else ""
    return f"A trial takes {trial}: {limit} is {reach}{confirming}; {units.round_up(enough_s)} recommended."
