"""Finds the options that set the length of a training: with small values, the training ends early."""

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.probe import effects, options
from autotune.probe.options import Option
from autotune.probe.proposal import ProbeResult
from autotune.probe.runs import CommandLine, Prober
from autotune.probe.watching import Watched

MOST_S = 240.0  # longest run from the first step until a training ends, or shows its score
_STEPS, _EVALUATIONS = 12, 2  # of a short training
_LATE = 2  # steps that it may train beyond its length
_ALIKE = 1.5, 2.5  # times the steps of an epoch in a training of two
_DOZEN, _NEARLY = 12, 0.6  # trials that a search should have time for; share that counts as a whole training
_LEAST_EPOCHS, _LEAST_STEPS = 4, 100  # of a trial shorter than the training

Length = tuple[str, tuple[Option, ...]]  # steps or epochs, and the options that count them


@dataclass(frozen=True)
class ShortTraining:
    line: CommandLine
    seen: Watched


@dataclass(frozen=True)
class Duration:
    """The result of an attempt to shorten the user's training `seen`."""

    seen: Watched
    note: str  # for the user
    length: Length | None = None  # None if no training was seen to end by it
    short: ShortTraining | None = None
    batch: int | None = None  # samples of a step
    every: int | None = None  # steps between evaluations, if an option says so

    @property
    def samples_per_epoch(self) -> int | None:
        """The samples of an epoch: the items of the loader, or those of a short training of one epoch."""
        if self.length is None or self.length[0] != "epochs":
            return None
        counted = len(self.short.seen.steps) * self.batch if self.short and self.batch else None
        return self.seen.loader.get("items") or counted

    @property
    def samples(self) -> int | None:
        """The samples of the user's training; None if its length cannot change."""
        if self.length is None:
            return None
        unit, counted = self.length
        each = self.batch if unit == "steps" else self.samples_per_epoch
        return each and round(each * float(counted[0].value or 1))

    @property
    def training_s(self) -> float | None:
        """The seconds that the user's training takes, by the times of its steps; None if unknown."""
        one_s = effects.step_s(self.seen)
        if self.length is None or one_s is None or self.short is None:
            return None
        short = self.short.seen
        count, steps_s = float(self.length[1][0].value or 1), one_s * len(short.steps)
        last_s = max([short.steps[-1].at_s, *(at_s for _, at_s in short.lines[-1:])])
        # For evaluations: one in each epoch, the two that `every` makes, or one at the end.
        outside_s = max(0.0, last_s - short.steps[0].at_s - steps_s)
        if self.length[0] == "epochs":
            return self.seen.start_s + count * (steps_s + outside_s)
        evaluations = count / self.every / _EVALUATIONS if self.every else 1
        return self.seen.start_s + count * one_s + evaluations * outside_s


def try_length(prober: Prober, known: Sequence[Option], seen: Watched, batch: int | None) -> Duration:
    """Tries the options that are named like the length of a training; `seen` is the user's own."""
    asked = options.ends(known)
    if not asked:
        return Duration(seen, "no option that ends the training was found, so its length stays")
    short: ShortTraining | None = None
    step_s = effects.step_s(seen) or 0.0
    # An option that is named like a number of steps may count epochs, if no other does.
    guessed = [("epochs", asked[0][1])] if [unit for unit, _ in asked] == ["steps"] else []
    for unit, counted in [*asked, *guessed]:
        name, before = counted[0].name, counted[0].value
        value = _STEPS if unit == "steps" else 1
        prober.say(f"Trying {name} {value} ...")
        every = options.evaluated(known) if unit == "steps" else None
        short = _run(prober, counted, value, every, step_s)
        count = len(short.seen.steps)
        is_shorter = not seen.has_ended or count < len(seen.steps)
        is_in_time = unit == "epochs" or count <= value + _LATE
        if not (short.seen.has_ended and is_shorter and is_in_time):
            continue
        if unit == "steps" or not guessed or _doubles(prober, counted, count, step_s):
            note = f"{name} {before} -> {value}: the training ended after {count} steps"
            length, interval = (unit, tuple(counted)), int(every.value or 1) if every else None
            return Duration(seen, note, length, short if short.seen.steps else None, batch, interval)
    tried = ", ".join(f"{counted[0].name} {counted[0].value}" for _, counted in asked)
    note = f"{tried}: did not end a training, so it stays"
    return Duration(seen, note, None, short if short and short.seen.steps else None)


def _doubles(prober: Prober, counted: Sequence[Option], count: int, step_s: float) -> bool:
    """Returns True if two epochs have twice the `count` steps of one: another option may end the training."""
    prober.say(f"Trying {counted[0].name} 2 ...")
    twice = _run(prober, counted, 2, None, step_s).seen
    return twice.has_ended and _ALIKE[0] * count <= len(twice.steps) <= _ALIKE[1] * count


def _run(
    prober: Prober, counted: Sequence[Option], value: int, every: Option | None, step_s: float
) -> ShortTraining:
    """Runs a training of `value` steps or epochs, which the option `every`, if any, makes evaluate twice."""
    line, factor = prober.line, value / float(counted[0].value or 1)
    for one in counted:
        line = line.with_value(one, options.scaled(one.value, factor))
    if every is not None:
        line = line.with_value(every, max(1, value // _EVALUATIONS))
    is_enough = effects.after_steps(value + _LATE + 1) if value == _STEPS else effects.never
    most_s = max(MOST_S, 2 * _STEPS * step_s)  # longer if a dozen steps take that
    most_s *= value if value < _STEPS else 1
    return ShortTraining(line, prober.run(line, is_enough, most_s))


def miniature(found: ProbeResult, time_s: float) -> int | None:
    """Returns the samples of a trial so that a dozen fit into `time_s`; None if whole trainings nearly do."""
    if not found.training_s or not found.samples or not found.length:
        return None
    unit, counted = found.length
    least = (_LEAST_EPOCHS if unit == "epochs" else _LEAST_STEPS) / float(counted[0].value or 1)
    share = max(time_s / (_DOZEN * found.training_s), least)
    return None if share > _NEARLY else round(share * found.samples)
