"""Finds the options that set the length of a training: with small values, the training ends early."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from autotune.probe import effects, options
from autotune.probe.options import Option
from autotune.probe.proposal import ProbeResult
from autotune.probe.runs import CommandLine, Prober
from autotune.probe.watching import Watched

MOST_S = 240.0  # longest run until a training ends, or shows its score
_STEPS = 12
_LATE = 2  # steps that it may train beyond its length
_DOZEN, _NEARLY = 12, 0.6  # trials that a search should have time for; share that counts as a whole training
_LEAST_EPOCHS, _LEAST_STEPS = 4, 100  # of a trial shorter than the training

Length = tuple[str, tuple[Option, ...]]  # steps or epochs, and the options that count them


@dataclass(frozen=True)
class ShortTraining:
    """A training that was made short, with its command line."""

    line: CommandLine
    seen: Watched


class TriedLength(NamedTuple):
    """The result of an attempt to shorten a training, with a note for the user."""

    length: Length | None  # None if no training was seen to end by it
    short: ShortTraining | None
    note: str


def try_length(prober: Prober, known: Sequence[Option], seen: Watched) -> TriedLength:
    """Tries the options that are named like the length of a training.

    `seen` is the user's own training. An option that is named like a number of steps may count epochs: if the
    training does not end after that many steps, the option is tried as epochs.
    """
    asked = options.ends(known)
    if asked is None:
        return TriedLength(None, None, "no option that ends the training was found, so its length stays")
    unit, counted = asked
    name, before = counted[0].name, counted[0].value
    short: ShortTraining | None = None
    for tried in ("steps", "epochs") if unit == "steps" else ("epochs",):
        value = _STEPS if tried == "steps" else 1
        prober.say(f"Trying {name} {value} ...")
        short = _run(prober, counted, value, options.evaluated(known) if tried == "steps" else None)
        if _has_ended_by_it(short.seen, seen, value):
            note = f"{name} {before} -> {value}: the training ended after {len(short.seen.steps)} steps"
            return TriedLength((tried, tuple(counted)), short if short.seen.steps else None, note)
    note = f"{name} {before}: did not end a training, so it stays"
    return TriedLength(None, short if short and short.seen.steps else None, note)


def _has_ended_by_it(short: Watched, full: Watched, value: int) -> bool:
    """Returns True if a training ended because its length was `value` steps or epochs."""
    count = len(short.steps)
    is_shorter = not full.has_ended or count < len(full.steps)
    return short.has_ended and is_shorter and (value != _STEPS or count <= value + _LATE)


def _run(prober: Prober, counted: Sequence[Option], value: int, every: Option | None) -> ShortTraining:
    """Runs a training of `value` steps or epochs, which the option `every`, if any, makes evaluate twice."""
    line, factor = prober.line, value / float(counted[0].value or 1)
    for one in counted:
        line = line.with_value(one, options.scaled(one.value, factor))
    if every is not None:
        line = line.with_value(every, max(1, value // 2))
    is_enough = effects.after_steps(value + _LATE + 1) if value == _STEPS else effects.never
    return ShortTraining(line, prober.run(line, is_enough, MOST_S))


def samples_per_epoch(
    seen: Watched, short: ShortTraining | None, length: Length | None, batch: int | None
) -> int | None:
    """Returns the samples of an epoch: the loader's items, or those of a short training of one epoch."""
    if length is None or length[0] != "epochs":
        return None
    return seen.loader.get("items") or (len(short.seen.steps) * batch if short and batch else None)


def samples(
    seen: Watched, short: ShortTraining | None, length: Length | None, batch: int | None
) -> int | None:
    """Returns the samples of the user's training; None if its length cannot change."""
    if length is None:
        return None
    each = batch if length[0] == "steps" else samples_per_epoch(seen, short, length, batch)
    return each and round(each * float(length[1][0].value or 1))


def miniature(found: ProbeResult, time_s: float) -> int | None:
    """Returns the samples of a trial such that a dozen trials fit into `time_s`.

    None if nearly as many whole trainings fit. A trial has at least four epochs, or a hundred steps.
    """
    if not found.training_s or not found.samples or not found.length:
        return None
    unit, counted = found.length
    least = (_LEAST_EPOCHS if unit == "epochs" else _LEAST_STEPS) / float(counted[0].value or 1)
    share = max(time_s / (_DOZEN * found.training_s), least)
    return None if share > _NEARLY else round(share * found.samples)


def training_s(seen: Watched, short: ShortTraining | None, length: Length | None) -> float | None:
    """Returns the seconds that the user's training takes, estimated from its steps; None if unknown."""
    one_s = effects.step_s(seen)
    if length is None or one_s is None or short is None:
        return None
    unit, counted = length
    count = float(counted[0].value or 1)
    return (seen.steps[0].at_s - seen.begun_s) + one_s * (
        count if unit == "steps" else count * len(short.seen.steps)
    )
