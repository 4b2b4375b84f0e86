"""Claims about a finalist from its race and seeds: its speed, and whether it keeps the quality. Pure."""

import math
import statistics
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from autotune.core import units
from autotune.core.trial import Failure, Repeat, Trial, TrialKind
from autotune.judging.decisions import objective, quality, racing
from autotune.judging.decisions.history import History
from autotune.judging.decisions.quality import KeptQuality, QualityAnswer
from autotune.judging.measurement import estimates, turns
from autotune.judging.measurement.estimates import Figure, student_t
from autotune.space.space import Space

# Confidence levels for a time to quality: a configuration equal to the baseline is called better once in a
# hundred searches. Looks before all seeds have run use a stricter level.
_LEVEL, _EARLY_LEVEL = 0.98, 0.998
_GIVE_UP_LEVEL = 0.9  # to give up a finalist: no claim rests on it
_LEAST_NOISE = 0.02
_FEWEST_SEEDS = 3  # of a claim about quality
_MOST_FAILURES = 2  # of the baseline's own repeats


@dataclass(frozen=True)
class Claim:
    """The result of confirming a finalist: it `holds` or has a `why_not`; neither while it is undecided."""

    number: int
    factor: Figure | None = None  # its training takes 1/`factor` of the time
    level: float = 100 * turns.LEVEL  # of the factor's interval, in percent
    rounds: int = 0  # of the race that gave the factor
    seeds: int = 0  # repeats, without the run by which it was selected
    kept: KeptQuality | None = None  # None if quality does not count or cannot be compared
    holds: bool = False
    why_not: str | None = None

    @property
    def is_done(self) -> bool:
        return self.holds or self.why_not is not None

    @property
    def answer(self) -> QualityAnswer | None:
        return self.kept.answer if self.kept else None


class _Runs(NamedTuple):
    """The finalist's repeats, whose results did not select it, and the baseline's runs."""

    ours: list[Trial]
    theirs: list[Trial]
    are_all: bool  # no seed is running, or left to run


def race_of(number: int, history: History) -> Trial | None:
    """Returns the last race of trial `number`; None if there is none, or it left the trial undecided."""
    races = [t for t in history.trials if t.completed and number in t.race]
    last = races[-1] if races else None
    if last is None or len(last.race) == 2:
        return last
    speed = turns.ratio(last.measurement.slices, number, 0, racing.LOOK_LEVEL)
    factor = speed and speed.scaled(history.length_ratio(history.trial(number)))
    return last if factor and (factor.is_above(1) or factor.is_below(1 + racing.EQUAL)) else None


def next_seed(finalist: Trial, history: History) -> Repeat | None:
    """Returns the next repeat of the finalist, or of the baseline if it has fewer; None if none may begin."""
    budget, has_target = history.space.budget, history.space.objective.target is not None
    done, theirs = _fresh(finalist.number, history), history.runs_of(0)
    ours, begun = [*done, *_running(finalist.number, history)], [*theirs, *_running(0, history)]
    is_looked_at = len(done) >= _FEWEST_SEEDS and (has_target or len(begun) == len(theirs))
    # Those that the first look needs may run at a time, and then all others.
    most = budget.repeats if is_looked_at else min(_FEWEST_SEEDS, budget.repeats)
    seeds = [t for t in history.repeats_of(0) if t.kind is TrialKind.SEED]
    failures = sum(t.outcome is not None and not t.completed for t in seeds)
    # The samples to a target are known from fewer runs of the baseline, which is the slowest to reach it.
    if len(begun) < min(len(done if has_target else ours), most) and failures < _MOST_FAILURES:
        return next_seed_of(0, history)
    return next_seed_of(finalist.number, history) if len(ours) < most else None


def next_seed_of(number: int, history: History) -> Repeat:
    rounds = [t.repeat.round for t in history.trials if t.repeat and t.repeat.of == number]
    return Repeat(number, max([0, *rounds]) + 1)


def _running(number: int, history: History) -> list[Trial]:
    return [t for t in history.repeats_of(number) if t.outcome is None]


def _fresh(number: int, history: History) -> list[Trial]:
    """Returns the completed repeats of a trial: unlike its first run, they had no part in selecting it."""
    return [t for t in history.runs_of(number) if t.repeat]


@lru_cache(maxsize=32)  # histories are immutable, and every view asks for the same claims
def claim(number: int, history: History) -> Claim:
    finalist, space, race = history.trial(number), history.space, race_of(number, history)
    ours = [t for t in _fresh(number, history) if t.measurement.origin == finalist.measurement.origin]
    is_running = _running(number, history) or _running(0, history)
    are_all = not is_running and next_seed(finalist, history) is None
    runs = _Runs(ours, history.runs_of(0), are_all)
    slices = race.measurement.slices if race else ()
    so_far = Claim(number, rounds=turns.count_rounds(slices, number, 0), seeds=len(runs.ours))
    if why_not := _failed(finalist, history):
        return replace(so_far, why_not=why_not)
    speed, surely = (turns.ratio(slices, number, 0, level) for level in (turns.LEVEL, racing.LOOK_LEVEL))
    if speed is None or surely is None:
        return so_far
    if space.objective.target is not None:
        return _claim_time(so_far, speed, runs, space)
    shorter = history.length_ratio(finalist)
    so_far = replace(so_far, factor=speed.scaled(shorter))
    if not surely.scaled(shorter).is_above(1):
        return replace(so_far, why_not=_not_faster(surely.scaled(shorter)))
    if space.objective.takes_any_quality:
        # A trial that was stopped early has not shown whether it keeps the constraints.
        is_shown = finalist.completed or bool(runs.ours) or not space.objective.constraints
        return replace(so_far, holds=is_shown)
    claimed = _claim_quality(so_far, runs, history)
    runs_s = history.runs_s(finalist, history.trial(0))
    if not claimed.holds or not runs_s or runs_s[0] < runs_s[1]:
        return claimed
    # A slow start, as by compiling, outweighs what the steps save.
    taken, instead_of = map(units.format_seconds, runs_s)
    why_not = f"from start to end, a run takes {taken} instead of {instead_of}"
    return replace(claimed, holds=False, why_not=why_not)


def _not_faster(factor: Figure) -> str:
    known = "in too few turns to be sure" if factor.low is None else f"and may be only {factor.low:.2f}x"
    return f"measured again, it was {factor.value:.2f}x as fast, {known}"


def _claim_time(so_far: Claim, speed: Figure, runs: _Runs, space: Space) -> Claim:
    """Returns the claim about reaching the target sooner, given the finalist's `speed` in the race."""
    goal = space.objective
    level = 1 - (1 - _LEVEL) / space.budget.finalists if runs.are_all else _EARLY_LEVEL
    factor, least = (_sooner(speed, runs, goal.aim or 0.0, at) for at in (level, _GIVE_UP_LEVEL))
    if factor is None or least is None:
        why_not = f"too few runs of the baseline reached {goal.quality} {goal.target:g} to know its time"
        return replace(so_far, why_not=why_not if runs.are_all else None)
    so_far = replace(so_far, factor=factor, level=100 * level)
    if factor.is_above(1):
        return replace(so_far, holds=True)
    is_over = runs.are_all or least.is_below(1)
    return replace(so_far, why_not=_not_faster(factor) if is_over else None)


def _sooner(speed: Figure, runs: _Runs, target: float, level: float) -> Figure | None:
    """Returns how many times sooner the finalist reaches the target; None while too few runs reached it."""
    needs = [[n for t in side if (n := objective.samples_to(t, target))] for side in (runs.ours, runs.theirs)]
    a, b = ([math.log(n) for n in samples] for samples in needs)
    degrees = len(a) + len(b) - 2
    if not a or not b or degrees < 1:
        return None
    centre, reference = statistics.fmean(a), statistics.fmean(b)
    squares = math.fsum((n - centre) ** 2 for n in a) + math.fsum((n - reference) ** 2 for n in b)
    noise = max(_LEAST_NOISE, math.sqrt(squares / degrees))
    error = noise * math.sqrt(1 / len(a) + 1 / len(b))
    race = math.log(speed.high / speed.low) / 2 if speed.low and speed.high else math.inf
    half = math.hypot(student_t(level, degrees) * error, race)  # the race and the runs are independent
    middle = math.log(speed.value) + reference - centre
    low, high = math.exp(middle - half) or None, math.exp(min(700.0, middle + half))
    return estimates.bounded(math.exp(middle), low, high)


def _claim_quality(so_far: Claim, runs: _Runs, history: History) -> Claim:
    """Returns the claim about the quality of a finalist that is certainly faster.

    It is tested after three runs of both sides and after each further pair, not more often, as every look
    lets some worse configurations pass. A finalist that computes the same as the baseline only has to show no
    certain loss, and so has any under `same-training`.
    """
    goal, level = history.space.objective, quality.early_level(history.space.budget.repeats)
    noise = quality.noise([runs.ours, runs.theirs])
    is_same = goal.select == "same-training" or history.computes_the_same(history.trial(so_far.number))
    kept = quality.compare(
        runs.ours, runs.theirs, history.least_share, noise, start=history.start, level=level
    )
    if kept is None:  # the baseline's quality is 0, or no run has any: nothing shows a loss
        why_not = f"its {goal.quality} cannot be compared" if runs.are_all else None
        return replace(so_far, holds=True) if runs.ours and is_same else replace(so_far, why_not=why_not)
    so_far = replace(so_far, kept=kept)
    if noise is None and not runs.are_all:  # a single run of each would show no loss, however large
        return so_far
    a, b = goal.turned(kept.quality), goal.turned(kept.reference)
    share = quality.format_share(kept.share, goal, kept.gain)
    figures = f"{a:.4f} instead of {b:.4f} ({share})"
    if kept.answer is QualityAnswer.LOST:
        return replace(so_far, why_not=f"worse {goal.quality}, {figures}")
    is_due = runs.are_all or len(runs.theirs) >= len(runs.ours) >= _FEWEST_SEEDS
    if is_same or (kept.answer is QualityAnswer.KEPT and is_due):
        return replace(so_far, holds=True)
    would = f"{kept.runs_needed} seeds each" if kept.runs_needed else "a larger evaluation set"
    why_not = f"{goal.quality} undecided after {len(runs.ours)} seeds, {figures}; {would} would decide it"
    return replace(so_far, why_not=why_not if runs.are_all else None)


def _failed(finalist: Trial, history: History) -> str | None:
    """Returns the reason if a finalist's race or repeats rule it out: one failure may be by chance."""
    space, number, chances = history.space, finalist.number, 1
    goal, target = space.objective, space.objective.aim
    for trial in history.trials:
        is_race = trial.race == (0, number)
        is_repeat = trial.kind is TrialKind.SEED and trial.original == number
        if not (is_race or is_repeat) or trial.outcome is None:
            continue
        what = "speed comparison" if is_race else "run with another seed"
        if chances and (trial.outcome.is_passing or trial.outcome.failure is Failure.LOST):
            chances -= 1
            continue
        if not trial.completed:
            return f"its {what} (trial {trial.number}) {trial.outcome}, {trial.outcome.reason}"
        if too_much := objective.over_memory(trial.measurement, space.limits.memory_fraction):
            return f"measured again, {too_much}"
        if is_repeat and target is not None and objective.samples_to(trial, target) is None:
            return f"its {what} (trial {trial.number}) did not reach {goal.quality} {goal.target:g}"
        if is_repeat and (broken := objective.broken_constraint(trial.measurement, goal)):
            return f"measured again, {broken}"
    return None
