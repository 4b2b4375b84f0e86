"""When a search will end, as far as that can be known. Pure functions of its trials."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from autotune.core import units
from autotune.core.trial import Trial, TrialKind
from autotune.judging.decisions import confirm
from autotune.judging.decisions.history import History
from autotune.space.space import Space
from autotune.storage.study_file import SearchPlan

_FEWEST_TRIALS = 3  # whose time says something about the next one's
_SURE = 2.0  # standard deviations
_FEWEST_RACE_S, _RACE_S = 10.0, 120.0
_SAME = 1.15  # a range as narrow as that is told as one figure
_ROUNDED = ((120, 10), (600, 30), (3600, 60), (math.inf, 300))  # below so many seconds, to so many


@dataclass(frozen=True)
class Remaining:
    """Between which times a search is likely to end; `is_capped` where its time limit is what ends it."""

    low_s: float
    high_s: float
    is_capped: bool = False

    def __str__(self) -> str:
        low, high = _rounded(self.low_s), _rounded(self.high_s)
        if self.is_capped and not self.low_s:
            return f"at most {units.format_seconds(self.high_s)}"
        if not low:
            return f"up to about {units.format_seconds(high)}" if high else "a few seconds"
        if high <= _SAME * low:
            return f"about {units.format_seconds(high)}"
        return f"about {units.format_seconds(low)} to {units.format_seconds(high)}"

    def after(self, passed_s: float) -> Self:
        """The same, that much later, where nothing has happened in between."""
        low_s, high_s = (max(0.0, value - passed_s) for value in (self.low_s, self.high_s))
        return replace(self, low_s=low_s, high_s=high_s)


def _rounded(value_s: float) -> float:
    step = next(step for below, step in _ROUNDED if value_s < below)
    return round(value_s / step) * step


def remaining(
    history: History, running_s: Mapping[int, float], plan: SearchPlan, slots: int
) -> Remaining | None:
    """Returns the time left of a search whose running trials took `running_s`; None if not known yet.

    It follows from how long trials took so far, including those stopped early or failed, with `slots` of them
    at a time; then the winner has to be confirmed, with more repeats the more finalists are as good. The time
    limit caps it.
    """
    searched = _searching(history, running_s, plan, slots)
    repeats = _confirming(history, running_s, is_searched=searched == (0.0, 0.0))
    left_s = plan.left_s
    if searched is None or repeats is None:
        return None if left_s is None else Remaining(0.0, left_s, is_capped=True)
    low_s, high_s = (a + b for a, b in zip(searched, repeats, strict=True))
    if left_s is not None and left_s < high_s:
        return Remaining(min(low_s, left_s), left_s, is_capped=True)
    return Remaining(low_s, high_s)


def _searching(
    history: History, running_s: Mapping[int, float], plan: SearchPlan, slots: int
) -> tuple[float, float] | None:
    """The time until no trial is left: what trials take on average, and how sure that is.

    In a finite space any remaining configuration may turn out not to be worth a start.
    """
    searched = history.searched
    running = [running_s[t.number] for t in searched if t.outcome is None and t.number in running_s]
    waiting = sum(t.outcome is None for t in searched) - len(running)
    untried = _configurations(history.space) - len(searched)
    to_come = waiting + int(max(0, min(untried, plan.trials - len(searched))))
    if not running and not to_come:
        return 0.0, 0.0
    took = _seconds(searched)
    if len(took) < _FEWEST_TRIALS:
        return None
    known, more, mean_s = len(took), len(running) + to_come, statistics.fmean(took)
    fewest = to_come if math.isinf(untried) else waiting
    begun_s = sum(_left_s(seconds, took) for seconds in running)
    spread_s = _SURE * statistics.stdev(took) * more * math.sqrt(1 / more + 1 / known)
    low_s, high_s = begun_s + fewest * mean_s - spread_s, begun_s + to_come * mean_s + spread_s
    return max(0.0, low_s) / slots, high_s / slots


def _configurations(space: Space) -> float:
    """Returns how many configurations there are at most."""
    choices = [knob.drawn_from.choice for knob in space.drawn_knobs.values()]
    return math.prod(math.inf if choice is None else len(choice) for choice in choices)


def _seconds(trials: Iterable[Trial]) -> list[float]:
    return [t.seconds for t in trials if t.outcome is not None and t.seconds > 0]


def _left_s(seconds: float, took: Sequence[float]) -> float:
    """Returns what a trial that has run for so long still takes, judged by those that took longer.

    Where none did, half as long again: given its own length alone, that is the least wrong.
    """
    longer = [t - seconds for t in took if t > seconds]
    return statistics.fmean(longer) if longer else seconds / 2


def _confirming(
    history: History, running_s: Mapping[int, float], *, is_searched: bool
) -> tuple[float, float] | None:
    """The time that races, repeats and the ablation will take, all of which run by themselves.

    The least: the best holds and its ablation is done. The most: every finalist and every step is tried.
    """
    budget, trials = history.space.budget, history.trials
    if not budget.repeats:
        return 0.0, 0.0
    baseline, best = history.baseline, history.best
    if baseline is None or best is None:
        return None
    each_s = (baseline.seconds + best.seconds) / 2  # one is run as often as the other
    steps = [t for t in trials if t.kind is TrialKind.STEP]
    going_on = [t for t in trials if t.outcome is None and t.runs_alone]
    begun_s = sum(running_s.get(t.number, 0.0) for t in going_on)
    is_decided = is_searched and confirm.next_step(history) is None
    left_steps = max(0, _most_steps(best, history.space) - sum(t.outcome is not None for t in steps))
    fewest_s = _fewest_s(best, trials, each_s, is_decided=is_decided)
    most_s = (
        fewest_s if is_decided else max(fewest_s, budget.finalists * (_RACE_S + 2 * budget.repeats * each_s))
    )
    low_s = fewest_s + len([t for t in steps if t.outcome is None]) * each_s
    return max(0.0, low_s - begun_s), max(0.0, max(low_s, most_s + left_steps * each_s) - begun_s)


def _fewest_s(best: Trial, trials: Sequence[Trial], each_s: float, *, is_decided: bool) -> float:
    """Returns the time left if the best so far holds: a race, unless there was one, and a seed of its own."""
    going_on = sum(t.outcome is None and t.kind is TrialKind.SEED for t in trials)
    if is_decided or not best.number:
        return going_on * each_s
    races = [t for t in trials if t.kind is TrialKind.RACE]
    race_s = _FEWEST_RACE_S if not races or races[-1].outcome is None else 0.0
    return race_s + max(best.seconds, going_on * each_s)


def _most_steps(best: Trial, space: Space) -> int:
    """Counts the steps between the baseline and the best, one knob at a time, both ends left out."""
    baseline, searched = space.baseline_config, space.drawn_knobs
    changed = [n for n, value in best.config.items() if n in searched and value != baseline.get(n, value)]
    return max(0, len(set(changed) - space.known.same_speed) - 1)
