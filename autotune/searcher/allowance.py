"""Tracks the budget of a search, including its earlier runs, and whether another trial pays for itself."""

import itertools
import math
from collections.abc import Callable
from dataclasses import replace

from autotune.core import units
from autotune.judging.decisions import confirm, pilot
from autotune.judging.decisions.history import History
from autotune.storage.study_file import SearchPlan

_A_DOZEN = 12
_SEEDS = 3  # of the winner and the baseline: usually enough to decide, though the budget may allow more
_SHORTEST = 0.25  # of its length: no training is made shorter
_MOST_FOR_CONFIRMING = 0.5  # of a time limit
_LEAST_GAIN = math.log(1.1)  # assumed of the next improvement; or the mean of those so far, if that is more


class Allowance:
    """Tracks how much of a `plan` is spent; `clock` is in seconds and starts now."""

    def __init__(self, plan: SearchPlan, clock: Callable[[], float]) -> None:
        self._plan, self._clock, self._begun_s = plan, clock, clock()
        self._limit_s = math.inf if plan.time_s is None else plan.time_s

    @property
    def spent_s(self) -> float:
        return self._plan.spent_s + self._clock() - self._begun_s

    def plan(self) -> SearchPlan:
        return replace(self._plan, spent_s=self.spent_s)

    def trials_left(self, searched: int) -> int:
        """Returns how many configurations may still be tried after `searched` ones."""
        return max(0, self._plan.trials - searched)

    def has_time_for(self, seconds: float) -> bool:
        return self.spent_s + seconds <= self._limit_s

    def has_time_to_search(self, confirming_s: float) -> bool:
        """Returns True if another trial may begin and time for confirming the winner remains."""
        return self.has_time_for(min(confirming_s, _MOST_FOR_CONFIRMING * self._limit_s))

    def share(self, history: History) -> float:
        """Returns the share of the full length to train: 1, or less if time would allow too few trials."""
        each_s, left_s = history.trial_s, self._limit_s - self.spent_s - confirm.most_s(history)
        enough = each_s * max(0, _A_DOZEN - len(history.searched))
        return 1.0 if not enough or enough <= left_s else max(_SHORTEST, left_s / enough)


def next_trial_pays(history: History) -> bool:
    """Returns True if the next trial is expected to save more training time than it costs.

    Future trainings take `budget.worth` seconds with the baseline's settings, and less with the best so far.
    The last of n independent trials is the best with probability 1 / n (Rényi, 1962); it is then expected to
    improve by the mean of earlier improvements. Always True without a `worth`.
    """
    worth_s = history.space.budget.worth
    ended = [trial.number for trial in history.searched if trial.outcome is not None]
    if worth_s is None or history.baseline is None or not ended:
        return True
    usual_s = history.training_s(history.baseline)
    seconds = {trial.number: history.training_s(trial) for trial in history.better}
    factors = [usual_s / s if usual_s and (s := seconds.get(number)) else 1.0 for number in ended]
    best = list(itertools.accumulate(factors, max))  # after each trial, relative to the baseline
    gains = [math.log(after / before) for before, after in itertools.pairwise(best) if after > before]
    gain = max(_LEAST_GAIN, math.fsum(gains) / len(gains)) if gains else _LEAST_GAIN
    saved_s = worth_s / best[-1] * -math.expm1(-gain)
    return saved_s / (len(best) + 1) > history.trial_s


def forecast(asked: History, plan: SearchPlan, slots: int) -> str | None:
    """Returns a warning with a better time limit, if time is too short for a dozen trials or a smaller plan.

    None before the baseline has completed. `slots` trials run at a time, 0 while no node can.
    """
    each_s = asked.trial_s
    if plan.time_s is None or plan.trials == 1 or not each_s or not slots:
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
