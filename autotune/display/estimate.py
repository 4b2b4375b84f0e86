"""Estimates when a search will end. Pure functions of its trials."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from autotune.core import units
from autotune.core.trial import Trial, TrialKind
from autotune.judging.decisions import confirm
from autotune.judging.decisions.history import History
from autotune.space.space import Space
from autotune.storage.study_file import SearchPlan

_FEWEST_TRIALS = 3  # to have ended before there is an estimate
_DEVIATIONS = 2.0  # standard errors on either side of the mean
_SHORTEST_RACE_S, _LONGEST_RACE_S = 10.0, 120.0
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
    """Returns the time left of a search that runs `slots` trials at a time; None if not known yet.

    It extrapolates the duration of the trials that have ended, including stopped and failed ones, and adds
    the confirmation of the winner. `running_s` has the seconds of running trials by number.
    """
    searched = _searching(history, running_s, plan, slots)
    confirming = _confirming(history, running_s, is_searched=searched == (0.0, 0.0))
    cap_s = math.inf if plan.left_s is None else plan.left_s
    if searched is None or confirming is None:
        return None if math.isinf(cap_s) else Remaining(0.0, cap_s, is_capped=True)
    low_s, high_s = searched[0] + confirming[0], searched[1] + confirming[1]
    return Remaining(min(low_s, cap_s), min(high_s, cap_s), is_capped=cap_s < high_s)


def _searching(
    history: History, running_s: Mapping[int, float], plan: SearchPlan, slots: int
) -> tuple[float, float] | None:
    """Returns the least and the most seconds until every trial has ended.

    In a finite space, each remaining configuration may be rejected without a run.
    """
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
    fewest = to_come if math.isinf(size) else waiting
    begun_s = sum(_left_s(seconds, took) for seconds in running)
    spread_s = _DEVIATIONS * statistics.stdev(took) * more * math.sqrt(1 / more + 1 / len(took))
    low_s, high_s = begun_s + fewest * mean_s - spread_s, begun_s + to_come * mean_s + spread_s
    return max(0.0, low_s) / slots, high_s / slots


def _left_s(seconds: float, took: Sequence[float]) -> float:
    """Returns the seconds left of a trial that has run for `seconds`, from the trials that took longer.

    If none did, it is half of `seconds`: the least wrong guess from its own length alone.
    """
    longer = [t - seconds for t in took if t > seconds]
    return statistics.fmean(longer) if longer else seconds / 2


def _confirming(
    history: History, running_s: Mapping[int, float], *, is_searched: bool
) -> tuple[float, float] | None:
    """Returns the least and the most seconds of the race, the repeats and the ablation.

    The least assumes that the best so far holds in a short race and one repeat; the most, that every finalist
    is confirmed and every step of the ablation is run.
    """
    space, baseline, best = history.space, history.baseline, history.best
    if not space.budget.repeats:
        return 0.0, 0.0
    if baseline is None or best is None:
        return None
    each_s = (baseline.seconds + best.seconds) / 2  # they are run equally often
    begun = [t for t in history.trials if t.outcome is None and t.runs_alone]
    low_s = each_s * sum(t.kind is TrialKind.SEED for t in begun)
    is_decided = is_searched and confirm.next_step(history) is None
    if best.number and not is_decided:
        is_raced = any(t.kind is TrialKind.RACE and t.outcome for t in history.trials)
        low_s = max(best.seconds, low_s) + (0.0 if is_raced else _SHORTEST_RACE_S)
    longest_s = space.budget.finalists * (_LONGEST_RACE_S + 2 * space.budget.repeats * each_s)
    high_s = low_s if is_decided else max(low_s, longest_s)
    steps_s = each_s * sum(t.kind is TrialKind.STEP for t in begun)
    to_come = _ablation_length(best, space) - sum(t.kind is TrialKind.STEP for t in history.trials)
    begun_s = sum(running_s.get(t.number, 0.0) for t in begun)
    low_s, high_s = low_s + steps_s - begun_s, high_s + steps_s - begun_s + max(0, to_come) * each_s
    return max(0.0, low_s), max(0.0, high_s)


def _ablation_length(best: Trial, space: Space) -> int:
    """Returns the number of configurations between the baseline and `best`, one knob apart."""
    baseline, searched = space.baseline_config, space.drawn_knobs
    changed = {n for n, value in best.config.items() if n in searched and value != baseline.get(n, value)}
    return max(0, len(changed - space.known.same_speed) - 1)
