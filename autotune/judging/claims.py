"""What confirming a finalist has shown: how much faster it is, and whether the quality holds. Pure."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from autotune.core.trial import Repeat, Trial, TrialKind
from autotune.judging import estimates, objective, quality, racing
from autotune.judging.estimates import Figure
from autotune.judging.history import History
from autotune.judging.measure import student_t
from autotune.judging.quality import Answer
from autotune.space.space import Space

# Of a time to quality: a baseline's equal is called better once in a hundred searches. What is looked at
# before all seeds are run has to be surer.
_LEVEL, _EARLY_LEVEL = 0.98, 0.998
_GIVE_UP_LEVEL = 0.9  # nothing is claimed of a finalist that is given up
_LEAST_NOISE = 0.02
_FEWEST_SEEDS = 3  # of a claim about quality
_MOST_FAILURES = 2  # of the baseline's own repeats


@dataclass(frozen=True)
class Claim:
    """What confirming a finalist has shown: its training takes 1/`factor` of the time.

    The interval is at `level` percent, from a race of so many `rounds` and the samples of both trainings; of
    the time to a target, from `seeds` runs besides. Qualities are means over runs, the finalist's over those
    that were not chosen for their quality; `answer` says whether it is kept, if that was asked. `why_not`
    says why it does not hold, None if it does, or if more has to run.
    """

    number: int
    factor: Figure | None = None
    level: float = 100 * racing.LEVEL
    rounds: int = 0
    seeds: int = 0
    quality: float | None = None
    baseline_quality: float | None = None
    share: Figure | None = None
    answer: Answer | None = None
    why_not: str | None = None
    is_done: bool = False

    @property
    def holds(self) -> bool:
        return self.is_done and self.why_not is None


def race_of(number: int, history: History) -> Trial | None:
    """The race that says how fast trial `number` is: the last one that it was in, if that is decided."""
    mine = [t for t in history.trials if t.completed and number in t.race]
    last = mine[-1] if mine else None
    if last is None or len(last.race) == 2:
        return last
    speed = racing.ratio(last.measurement.slices, number, 0, racing.LOOK_LEVEL)
    factor = speed and speed.scaled(history.shorter(history.of(number)))
    return last if factor and (factor.is_above(1) or factor.is_below(1 + racing.EQUAL)) else None


def rests_on(number: int, history: History) -> list[Trial]:
    """The trials that a claim about the speed of trial `number` is made from."""
    race = race_of(number, history)
    return [race] if race else []


def next_seed(finalist: Trial, history: History) -> Repeat | None:
    """A run more of the finalist, or of the baseline where that has fewer; None where none is left."""
    most, ours = history.space.budget.repeats, _fresh(finalist.number, history)
    theirs = history.runs_of(0)
    begun = [t for t in history.trials if t.kind is TrialKind.SEED and t.original == 0]
    failures = sum(t.outcome is not None and not t.completed for t in begun)
    if len(theirs) < min(len(ours), most) and failures < _MOST_FAILURES:
        return _repeat(0, history)
    return _repeat(finalist.number, history) if len(ours) < most else None


def _repeat(number: int, history: History) -> Repeat:
    rounds = [t.repeat.round for t in history.trials if t.repeat and t.repeat.of == number]
    return Repeat(number, max([0, *rounds]) + 1, (number,))


def _fresh(number: int, history: History) -> list[Trial]:
    """The completed repeats of a trial: unlike its own run they were not chosen for what they showed."""
    return [t for t in history.runs_of(number) if t.repeat]


def claim(finalist: Trial, history: History) -> Claim:
    """What confirming `finalist` has shown so far."""
    space, ours, theirs = history.space, _fresh(finalist.number, history), history.runs_of(0)
    ours = [t for t in ours if t.measurement.origin == finalist.measurement.origin]
    found = Claim(
        number=finalist.number,
        seeds=len(ours),
        quality=objective.mean(quality.qualities(ours)),
        baseline_quality=objective.mean(quality.qualities(theirs)),
    )
    if why_not := _failed(finalist, history):
        return replace(found, why_not=why_not, is_done=True)
    race = race_of(finalist.number, history)
    slices = race.measurement.slices if race else ()
    speed = racing.ratio(slices, finalist.number, 0)
    surely = racing.ratio(slices, finalist.number, 0, racing.LOOK_LEVEL)
    if speed is None or surely is None:
        return found
    found = replace(found, rounds=racing.rounds(slices, finalist.number, 0))
    is_last = next_seed(finalist, history) is None
    if space.objective.target is not None:
        return _sooner(found, speed, ours, theirs, space, is_last=is_last)
    shorter = history.shorter(finalist)
    found = replace(found, factor=speed.scaled(shorter))
    if not surely.scaled(shorter).is_above(1):
        return replace(found, why_not=_not_faster(surely.scaled(shorter)), is_done=True)
    if space.objective.takes_any_quality:
        # A trial that was stopped early has not shown whether it keeps the constraints.
        return replace(found, is_done=finalist.completed or bool(ours) or not space.objective.constraints)
    return _kept(found, ours, theirs, history, is_last=is_last)


def _not_faster(factor: Figure) -> str:
    least = factor.low or 0.0
    return f"{factor.value:.2f}x, but by its interval possibly only {least:.2f}x: the gain is not certain"


def _sooner(
    found: Claim,
    speed: Figure,
    ours: Sequence[Trial],
    theirs: Sequence[Trial],
    space: Space,
    *,
    is_last: bool,
) -> Claim:
    """What is known of the time to the target: of the speed by the race, of the samples by the runs.

    Two sources that know nothing of each other: the squares of what each leaves open are added.
    """
    target = space.objective.aim or 0.0
    needs = [[n for t in runs if (n := objective.samples_to(t, target))] for runs in (ours, theirs)]
    a, b = ([math.log(n) for n in samples] for samples in needs)
    degrees = len(a) + len(b) - 2
    if not a or not b or degrees < 1:
        return replace(found, why_not=_no_time(space), is_done=True) if is_last else found
    noise = max(_LEAST_NOISE, math.sqrt(sum(_squares(logs) for logs in (a, b)) / degrees))
    error, race = noise * math.sqrt(1 / len(a) + 1 / len(b)), _half(speed)
    level = 1 - (1 - _LEVEL) / space.budget.finalists if is_last else _EARLY_LEVEL
    half = math.hypot(student_t(level, degrees) * error, race)
    middle = math.log(speed.value) + statistics.fmean(b) - statistics.fmean(a)
    low, high = math.exp(middle - half) or None, math.exp(min(700.0, middle + half))
    factor = estimates.within(math.exp(middle), low, high)
    found = replace(found, factor=factor, level=100 * level)
    if factor.is_above(1):
        return replace(found, is_done=True)
    is_hopeless = middle + math.hypot(student_t(_GIVE_UP_LEVEL, degrees) * error, race) < 0
    if is_last or is_hopeless:
        return replace(found, why_not=_not_faster(factor), is_done=True)
    return found


def _half(speed: Figure) -> float:
    """Half of a ratio's interval, of its logarithm."""
    return math.log(speed.high / speed.low) / 2 if speed.low and speed.high else math.inf


def _no_time(space: Space) -> str:
    goal = space.objective
    return f"too few runs of the baseline have reached {goal.quality} {goal.target:g} to tell its time"


def _squares(values: Sequence[float]) -> float:
    mean = statistics.fmean(values)
    return math.fsum((value - mean) ** 2 for value in values)


def _kept(
    found: Claim, ours: Sequence[Trial], theirs: Sequence[Trial], history: History, *, is_last: bool
) -> Claim:
    """Whether a finalist that is faster with confidence keeps the quality: a test with three answers.

    It is looked at after three runs of both, and after every further one of both: a look in between would
    pass more of those that are worse. The same training has to show no more than that quality is not lost
    with confidence.
    """
    space, goal, start = history.space, history.space.objective, history.start
    keep = objective.least_share(goal, found.baseline_quality or 0.0, start)
    level = quality.early_level(space.budget.repeats)
    noise = quality.noise([ours, theirs])
    beside = quality.compare(ours, theirs, keep, noise, start=start, level=level)
    if beside is None:
        return _without_quality(found, ours, space, is_last=is_last)
    found = replace(found, share=beside.share, answer=beside.answer)
    a, b = goal.turned(beside.quality), goal.turned(beside.reference)
    figures = f"{goal.quality} {a:.4f} against {b:.4f}"
    between = quality.between(beside.share, goal, beside.gain)
    if beside.answer is Answer.LOST:
        return replace(found, why_not=f"{figures}, {between}: lost", is_done=True)
    is_due = is_last or len(theirs) >= len(ours) >= _FEWEST_SEEDS
    if goal.select == "same-training" or (beside.answer is Answer.KEPT and is_due):
        return replace(found, is_done=True)
    if not is_last:
        return found
    would = (
        f"{beside.runs_needed} seeds of both would decide it" if beside.runs_needed else "scoring more would"
    )
    why_not = f"{figures}, {between}, with {len(ours)} seeds: not decided; {would}"
    return replace(found, why_not=why_not, is_done=True)


def _without_quality(found: Claim, ours: Sequence[Trial], space: Space, *, is_last: bool) -> Claim:
    """The claim where the baseline's quality is 0, or no run has any: no loss is shown."""
    if ours and space.objective.select == "same-training":
        return replace(found, is_done=True)
    if not is_last:
        return found
    return replace(found, why_not=f"its {space.objective.quality} cannot be compared", is_done=True)


def _failed(finalist: Trial, history: History) -> str | None:
    """Why a finalist is out because of how a race or a repeat of it ended."""
    space, number = history.space, finalist.number
    goal, target = space.objective, space.objective.aim
    for trial in history.trials:
        is_race = trial.race == (0, number)
        is_repeat = trial.kind is TrialKind.SEED and trial.original == number
        if not (is_race or is_repeat) or trial.outcome is None:
            continue
        what = "race" if is_race else "repeat"
        if not trial.completed:
            return f"its {what}, trial {trial.number}, {trial.outcome}: {trial.outcome.reason}"
        if too_much := objective.over_memory(trial.measurement, space.limits.memory_fraction):
            return f"repeated, {too_much}"
        if is_repeat and target is not None and objective.samples_to(trial, target) is None:
            return f"its repeat, trial {trial.number}, has not reached {goal.quality} {goal.target:g}"
        if is_repeat and (broken := objective.broken_constraint(trial.measurement, goal)):
            return f"repeated, {broken}"
    return None
