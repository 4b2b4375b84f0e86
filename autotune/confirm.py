"""The winner is repeated against the baseline before anything is claimed. Pure functions of the trials.

Rounds: the baseline and the finalists once each, alone on the device, every round with a seed of its own and
every other one in reverse, so that a machine that slows down favours nobody.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from autotune import curves, objective
from autotune.measure import half_interval
from autotune.space import Space
from autotune.speeds import Speeds
from autotune.trial import SAME_SPEED, Repeat, Status, Trial, settings_key

_LEVEL = 0.95
_MOST_ROUNDS = 2  # times what is needed where every repeat completes


@dataclass(frozen=True)
class Claim:
    """What the repeats of a finalist say: `factor` times the baseline, between `low` and `high` at 95%.

    From so many `pairs` of runs of the same round. Qualities are means over them, the baseline's over all its
    runs. `why_not` says why it does not hold, None where it does, or where the repeats are not done.
    """

    number: int
    pairs: int
    factor: float
    low: float
    high: float
    quality: float | None
    baseline_quality: float | None
    why_not: str | None = None
    is_done: bool = False

    @property
    def holds(self) -> bool:
        return self.is_done and self.why_not is None


def noise_repeat() -> Repeat:
    """One run more of the baseline, which shows by how much equal runs differ."""
    return Repeat(of=0, round=0, members=(0,))


def is_alone(trial: Trial) -> bool:
    """Whether nothing else may run beside `trial`."""
    return trial.way_to is not None or (trial.repeat is not None and trial.repeat.round > 0)


def seed_of(trial: Trial) -> int:
    """Which seed a trial runs with, 0 for the settings' own: every round of repeats has the next one."""
    return 0 if trial.repeat is None else trial.repeat.round + 1


def next_repeat(trials: Sequence[Trial], space: Space) -> Repeat | None:
    """What is to be repeated next, None when all is said."""
    if not space.budget.repeats or objective.baseline_of(trials) is None:
        return None
    done = [t.repeat for t in trials if t.repeat and t.repeat.round > 0]
    last = max((r.round for r in done), default=0)
    this = [r for r in done if r.round == last]
    for number in this[0].members if this else ():
        if number not in {r.of for r in this}:
            return Repeat(number, last, this[0].members)
    return _new_round(trials, space, last + 1)


def _new_round(trials: Sequence[Trial], space: Space, number: int) -> Repeat | None:
    if number > _MOST_ROUNDS * space.budget.repeats * space.budget.finalists:
        return None  # the baseline's own repeats fail
    standing = [(t, c) for t in finalists(trials, space) if (c := claim(t, trials, space)).why_not is None]
    if not standing or standing[0][1].is_done:
        return None
    active = _contenders([t for t, c in standing if not c.is_done], trials, space)
    members = (0, *(t.number for t in active))
    members = members if number % 2 else members[::-1]
    return Repeat(members[0], number, members)


def _contenders(standing: Sequence[Trial], trials: Sequence[Trial], space: Space) -> list[Trial]:
    """The champion, and who may be as fast; of those that must be equally fast only the best."""
    champion, *others = standing
    if space.objective.target is not None:
        return [champion]
    speeds, found = Speeds(trials), [champion]
    least = objective.surely_per_s(champion, speeds)
    for trial in others:
        throughput = speeds.of(trial)
        keys = {settings_key(t.config, SAME_SPEED) for t in found}
        if throughput is None or settings_key(trial.config, SAME_SPEED) in keys:
            continue
        most = throughput.samples_per_s + (throughput.half_width_per_s or 0.0)
        if most * (1 + curves.SURE * speeds.drift) >= least:
            found.append(trial)
    return found


def finalists(trials: Sequence[Trial], space: Space) -> list[Trial]:
    """Who is repeated, best first: at most so many as the budget says, those included that were already.

    Who has been refuted before new configurations were tried, in a search that was gone on with, is no more.
    """
    ranked = _candidates(trials, space)
    last = max(t.number for t in trials if t.searched)
    begun = _repeated([t for t in trials if t.number > last])
    refuted = {n for n in _repeated(trials) - begun if claim(_of(trials, n), trials, space).why_not}
    fresh = [t.number for t in ranked if t.number not in begun | refuted]
    chosen = begun | set(fresh[: max(0, space.budget.finalists - len(begun))])
    dropped = chosen - {t.number for t in ranked}  # begun, and by now no faster than the baseline
    return [t for t in ranked if t.number in chosen] + [_of(trials, n) for n in sorted(dropped)]


def _repeated(trials: Sequence[Trial]) -> set[int]:
    """The trials that were repeated to confirm them."""
    return {t.repeat.of for t in trials if is_alone(t) and t.repeat and t.repeat.of}


def _of(trials: Sequence[Trial], number: int) -> Trial:
    return next(t for t in trials if t.number == number)


def _candidates(trials: Sequence[Trial], space: Space) -> list[Trial]:
    """Who may be better than the baseline, best first.

    A trial that was stopped for being slower than another one is one again when that one does not hold.
    """
    goal, fraction = space.objective, space.limits.memory_fraction
    eligible = objective.ranked(trials, goal, fraction)
    better = eligible[: next((i for i, t in enumerate(eligible) if t.number == 0), 0)]
    if goal.target is not None:
        return better
    speeds, baseline = Speeds(trials), objective.baseline_of(trials)
    least = objective.surely_per_s(baseline, speeds) if baseline else math.inf
    reference, noise = objective.baseline_curve(trials), objective.noise(trials)
    stopped = [
        t
        for t in trials
        if t.outcome
        and t.outcome.status is Status.STOPPED
        and t.searched
        and baseline
        and t.measurement.origin == baseline.measurement.origin
        and objective.surely_per_s(t, speeds) > least
        and not objective.over_memory(t.measurement, fraction)
        and not curves.is_out_of_reach(
            t.measurement.curve, reference, goal.keep, noise, space.budget.samples_per_trial
        )
    ]
    return sorted([*better, *stopped], key=lambda t: objective.surely_per_s(t, speeds), reverse=True)


def claim(finalist: Trial, trials: Sequence[Trial], space: Space) -> Claim:
    """What the repeats so far say of `finalist`."""
    repeats = [t for t in trials if t.repeat and t.repeat.round > 0]
    ours = {t.repeat.round: t for t in repeats if t.repeat and t.repeat.of == finalist.number}
    theirs = {t.repeat.round: t for t in repeats if t.repeat and t.repeat.of == 0 and t.completed}
    pairs = [
        (ours[r], theirs[r])
        for r in sorted(ours.keys() & theirs.keys())
        if ours[r].completed and ours[r].measurement.origin == theirs[r].measurement.origin
    ]
    logs = [math.log(a / b) for x, y in pairs if (a := merit(x, space)) and (b := merit(y, space))]
    factor, low, high = _interval(logs, space.budget.finalists)
    quality = objective.mean([t.quality for t in ours.values() if t.completed and t.quality is not None])
    found = Claim(
        number=finalist.number,
        pairs=len(logs),
        factor=factor,
        low=low,
        high=high,
        quality=quality,
        baseline_quality=objective.baseline_quality(trials),
    )
    is_done = 0 < space.budget.repeats <= len(logs)
    why_not = _failed(list(ours.values()), space) or (_why_not(found, space) if is_done else None)
    return Claim(**{**vars(found), "why_not": why_not, "is_done": is_done or why_not is not None})


def merit(trial: Trial, space: Space) -> float | None:
    """What is compared: samples per second, or the inverse of the time to the target.

    A run that never reached the target counts with all the time that it had.
    """
    target = space.objective.target
    if target is None:
        return trial.samples_per_s
    seconds = objective.seconds_to(trial, target)
    if seconds is None and trial.measurement.curve:
        seconds = trial.measurement.curve[-1].seconds
    return 1 / seconds if seconds else None


def _interval(logs: Sequence[float], tests: int) -> tuple[float, float, float]:
    """The mean ratio and its interval, from logarithms of paired ratios: Student's t.

    The level is 95% for a single finalist. As many as `tests` may be tried until one holds, so that the level
    is raised (Bonferroni) to leave a baseline's equal a chance of at most 5% in all to be called better.
    """
    if not logs:
        return math.nan, 0.0, math.inf
    middle = statistics.fmean(logs)
    if len(logs) < 2:
        return math.exp(middle), 0.0, math.inf
    level = 1 - (1 - _LEVEL) / tests
    half = half_interval(logs, level)
    return math.exp(middle), math.exp(middle - half), math.exp(min(700.0, middle + half))


def _failed(repeats: Sequence[Trial], space: Space) -> str | None:
    for trial in repeats:
        if trial.outcome is not None and not trial.completed:
            return f"its repeat, trial {trial.number}, {trial.outcome}: {trial.outcome.reason}"
        if too_much := objective.over_memory(trial.measurement, space.limits.memory_fraction):
            return f"repeated, {too_much}"
        if trial.completed and space.objective.target is not None:
            target = space.objective.target
            if objective.seconds_to(trial, target) is None:
                return (
                    f"its repeat, trial {trial.number}, has not reached {space.objective.quality} {target:g}"
                )
    return None


def _why_not(found: Claim, space: Space) -> str | None:
    if found.low <= 1:
        return f"{found.factor:.2f}x, and it may be {found.low:.2f}x: no gain that is sure"
    if space.objective.target is not None:
        return None
    least = curves.least(space.objective.keep, found.baseline_quality or 0.0)
    if found.quality is None or found.quality < least:
        return f"{space.objective.quality} {found.quality or 0.0:.4f} is below {least:.4f}"
    return None


def confirmed(trials: Sequence[Trial], space: Space) -> tuple[Trial, Claim] | None:
    """The finalist that holds, the best where several do, and its claim; None where none does, or not yet."""
    claims = [claim(_of(trials, number), trials, space) for number in _repeated(trials)]
    best = max((c for c in claims if c.holds), key=lambda c: c.factor, default=None)
    return (_of(trials, best.number), best) if best else None


def refuted(trials: Sequence[Trial], space: Space) -> list[tuple[Trial, str]]:
    """The finalists that did not hold, and why."""
    claims = [claim(_of(trials, number), trials, space) for number in sorted(_repeated(trials))]
    return [(_of(trials, c.number), c.why_not) for c in claims if c.why_not]


def recommended(trials: Sequence[Trial], space: Space) -> tuple[Trial, Claim | None] | None:
    """What to run: the confirmed winner, or the baseline where none holds.

    Without a claim, and only the best by its single run, as long as the repeats are not done. None before the
    baseline has completed.
    """
    if found := confirmed(trials, space):
        return found
    best = objective.winner(trials, space.objective, space.limits.memory_fraction)
    if best is None:
        return None
    if not _repeated(trials):
        return best, None
    standing = (t for t in finalists(trials, space) if t.completed and not claim(t, trials, space).why_not)
    return next(standing, _of(trials, 0)), None
