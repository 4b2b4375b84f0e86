"""Estimates when a search will end. Pure functions of its trials."""

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

from autotune.core import units
from autotune.core.trial import TrialKind
from autotune.judging.decisions import confirm
from autotune.judging.decisions.history import History
from autotune.storage.study_file import SearchPlan

_FEWEST_TRIALS = 3  # to have ended before there is an estimate
_DEVIATIONS = 2.0  # standard errors on either side of the mean
_NARROW = 1.15  # ratio of a range that is printed as one figure
_ROUNDED = ((120, 10), (600, 30), (3600, 60), (math.inf, 300))  # seconds: values below x, to multiples of y


@dataclass(frozen=True)
class Remaining:
    """The range of seconds in which a search will probably end."""

    low_s: float
    high_s: float
    is_capped: bool = False  # ended by its time limit

    def __str__(self) -> str:
        low, high = _rounded(self.low_s), _rounded(self.high_s)
        if self.is_capped and not self.low_s:
            return f"at most {units.format_seconds(self.high_s)}"
        if not low:
            return f"up to about {units.format_seconds(high)}" if high else "a few seconds"
        if high <= _NARROW * low:
            return f"about {units.format_seconds(high)}"
        return f"about {units.format_seconds(low)} to {units.format_seconds(high)}"

    def after(self, passed_s: float) -> Self:
        """Returns the range after another `passed_s` seconds, if no trial has begun or ended meanwhile."""
        return replace(self, low_s=max(0.0, self.low_s - passed_s), high_s=max(0.0, self.high_s - passed_s))


def _rounded(value_s: float) -> float:
    step = next(step for below, step in _ROUNDED if value_s < below)
    return round(value_s / step) * step


def remaining(
    history: History, running_s: Mapping[int, float], plan: SearchPlan, slots: int
) -> Remaining | None:
    """Returns the time left, from the trials that have ended, with `slots` at a time; None if unknown."""
    searched = _searching(history, running_s, plan)
    confirming_s = _confirming_s(history, is_searched=searched == (0.0, 0.0))
    cap_s = math.inf if plan.left_s is None else plan.left_s
    if searched is None or confirming_s is None:
        return None if math.isinf(cap_s) else Remaining(0.0, cap_s, is_capped=True)
    low_s, high_s = searched[0] / slots, searched[1] / slots + confirming_s
    return Remaining(min(low_s, cap_s), min(high_s, cap_s), is_capped=cap_s < high_s)


def _searching(
    history: History, running_s: Mapping[int, float], plan: SearchPlan
) -> tuple[float, float] | None:
    """Returns the least and the most seconds of all searched trials to come, one after the other."""
    searched, choices = history.searched, [k.drawn_from.choice for k in history.space.drawn_knobs.values()]
    size = math.prod(math.inf if choice is None else len(choice) for choice in choices)
    running = [running_s[t.number] for t in searched if t.outcome is None and t.number in running_s]
    waiting = sum(t.outcome is None for t in searched) - len(running)
    to_come = waiting + int(max(0, min(size, plan.trials) - len(searched)))
    if not running and not to_come:
        return 0.0, 0.0
    took = [t.seconds for t in searched if t.outcome is not None and t.seconds > 0]
    if len(took) < _FEWEST_TRIALS:
        return None
    more, mean_s = len(running) + to_come, statistics.fmean(took)
    fewest = to_come if math.isinf(size) else waiting  # in a finite space, each may be rejected without a run
    begun_s = 0.0
    for seconds in running:  # if no trial took longer, half as long again is the least wrong guess
        longer = [t - seconds for t in took if t > seconds]
        begun_s += statistics.fmean(longer) if longer else seconds / 2
    spread_s = _DEVIATIONS * statistics.stdev(took) * more * math.sqrt(1 / more + 1 / len(took))
    return max(0.0, begun_s + fewest * mean_s - spread_s), begun_s + to_come * mean_s + spread_s


def _confirming_s(history: History, *, is_searched: bool) -> float | None:
    """Returns how long confirming all finalists and explaining the winner takes at most; None if unknown."""
    space, baseline, best = history.space, history.baseline, history.best
    if not space.budget.repeats:
        return 0.0
    if baseline is None or best is None:
        return None
    has_ended = all(t.outcome is not None for t in history.trials)
    is_decided = is_searched and has_ended and confirm.next_step(history) is None
    finalists = 0 if is_decided else space.budget.finalists
    drawn, before = space.drawn_knobs, space.baseline_config
    changed = {
        name for name, value in best.config.items() if name in drawn and value != before.get(name, value)
    }
    steps = len(changed - space.known.same_speed) - 1 - sum(t.kind is TrialKind.STEP for t in history.trials)
    confirming_s = finalists * confirm.confirming_s(history, space.budget.repeats)
    return confirming_s + max(0, steps) * history.trial_s
