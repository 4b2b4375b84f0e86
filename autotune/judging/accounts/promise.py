"""What a session has said of settings, and whether the training that follows keeps it. Pure.

A promise is the figure that was shown. It held if the training reaches 95% of it with confidence, however
sure the search was of it, and is broken if the training falls short with confidence, both intervals
allowed for. In between nothing is decided. A machine on which equal trials differed in speed may differ as
much from then to now, and that breaks no promise. One training is one seed, so that its quality is compared
with what was to be kept, with the scatter that equal runs have shown.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from autotune.core import units
from autotune.core.measurement import Measurement
from autotune.core.trial import Outcome, Status, Trial
from autotune.judging.decisions import objective
from autotune.judging.decisions.history import History
from autotune.judging.measurement import curves, estimates
from autotune.judging.measurement.estimates import Figure
from autotune.space.sections import Objective

SLACK = 0.05  # of what was promised: days differ by as much on a machine that nothing is wrong with
_SLACK_BYTES = 64 * 2**20  # by which the memory of one training differs from day to day, caches and libraries
_SCATTERS = 2.0  # standard deviations between equal runs, beyond which a quality is no chance


class Answer(StrEnum):
    """The answer to the question whether what was promised came."""

    HELD = "held"
    BROKEN = "did not hold"
    UNDECIDED = "not decided"


@dataclass(frozen=True)
class Promise:
    """The figures that a session has shown of a trial's settings, with intervals of 95% if there are any.

    `quality` is the tuner's own, of which higher is better, after so many `samples`; `least` is what was to
    be kept, and `scatter` the standard deviation between equal runs. All three are None if nothing is
    known of them. With a target both are the target, and `samples` is what the slowest of the runs needed.
    `memory_bytes` are of the training process alone. `origin` says on what device and of which code it was
    measured, as that of a `Measurement`. `moved` is how much faster than the slowest of equal trials the
    fastest one was, at most.
    """

    session: str
    trial: int
    samples: int
    throughput: Figure | None
    quality: float | None
    least: float | None
    scatter: float | None
    memory_bytes: int | None
    origin: tuple[str, str]
    moved: float = 0.0
    has_target: bool = False


@dataclass(frozen=True)
class Kept:
    """The answer on one figure of a promise, and a line that says why.

    `promised` and `found` are samples per second, the quality in the user's own sign, bytes. What the
    training has not reached yet is not `found`.
    """

    what: str
    answer: Answer
    text: str
    promised: Figure
    found: Figure | None


def promised(trial: Trial, history: History, session: str) -> Promise:
    """Returns what a session promises of the settings of `trial`."""
    found, goal = history.quality(trial), history.space.objective
    counts = found is not None and not goal.takes_any_quality
    noise = history.noise
    needed = history.to_target.most_samples(trial) if counts else None
    whole = history.length(trial)
    return Promise(
        session=session,
        trial=trial.number,
        samples=whole if needed is None else math.ceil(needed),
        throughput=history.throughput(trial),
        quality=(found.value if found else None) if needed is None else goal.aim,
        least=history.least_quality if counts else None,
        scatter=noise * curves.gain(found.value, history.start) if noise is not None and found else None,
        memory_bytes=history.memory(trial).own_peak_bytes,
        origin=trial.measurement.origin,
        moved=max((share for _, _, share in history.speeds.disagreements()), default=0.0),
        has_target=needed is not None,
    )


def kept(promise: Promise, shown: Measurement, goal: Objective, unit: str) -> list[Kept]:
    """Returns what became of everything that was promised."""
    found = (_speed(promise, shown, unit), _quality(promise, shown, goal, unit), _memory(promise, shown))
    return [_with_origin(one, promise, shown) for one in found if one is not None]


def _with_origin(one: Kept, promise: Promise, shown: Measurement) -> Kept:
    """Returns `one` with what of its origin is not the promise's, if both are known.

    Speed and memory of different devices are not compared: nothing is decided of them.
    """
    device, code = promise.origin
    is_moved = bool(device) and shown.device not in {"", device} and one.what != "quality"
    is_edited = bool(code) and shown.revision not in {"", code}
    other = [f"on {device}, trained on {shown.device}"] * is_moved + ["of other code"] * is_edited
    answer = Answer.UNDECIDED if is_moved else one.answer
    return replace(one, answer=answer, text="; promised ".join([one.text, *other]))


def _speed(promise: Promise, shown: Measurement, unit: str) -> Kept | None:
    """Held by the training's own interval, against the figure that was shown; broken by that of both."""
    if promise.throughput is None:
        return None
    found = estimates.of_run(shown.throughput)
    if found is None:
        return _not_yet("speed", promise.throughput, "not measured yet")
    ratio, least = estimates.over(found, promise.throughput), 1 - SLACK
    is_kept = found.low is not None and found.low >= least * promise.throughput.value
    is_broken = ratio.is_below(least / (1 + promise.moved))
    answer = _answer(is_kept=is_kept, is_broken=is_broken)
    text = (
        f"{found.value:.1f} {unit}/s, {promise.throughput.value:.1f} promised: {compare_speed(ratio.value)}"
    )
    if promise.moved > SLACK and not is_kept:
        text += f"; equal trials of that session were up to {promise.moved:.0%} apart"
    return Kept("speed", answer, text, promise.throughput, found)


def compare_speed(ratio: float) -> str:
    """`as promised`, or `7% slower`: a speed that is `ratio` times the one that was promised."""
    if abs(ratio - 1) < SLACK:
        return "as promised"
    return f"{abs(ratio - 1):.0%} {'faster' if ratio > 1 else 'slower'}"


def _quality(promise: Promise, shown: Measurement, goal: Objective, unit: str) -> Kept | None:
    """Of the first evaluation after as many samples as the promise is of: a longer training learns more."""
    if promise.least is None:
        return None
    least, promised = (goal.turned(value) for value in (promise.least, promise.quality or 0.0))
    reached = curves.reached(shown.curve, promise.least) if promise.has_target else None
    if reached is not None and reached <= promise.samples:
        text = f"{goal.quality} {least:.4f} reached after {reached:.0f} {unit}, {promise.samples} promised"
        return Kept("quality", Answer.HELD, text, Figure(promised), Figure(least))
    point = next((p for p in shown.curve if p.samples >= promise.samples), None)
    if point is None:
        return _not_yet("quality", Figure(promised), f"not evaluated after {promise.samples} {unit} yet")
    room = _SCATTERS * (promise.scatter or 0.0)
    is_kept = point.quality >= promise.least
    is_broken = promise.scatter is not None and point.quality < promise.least - room
    found = goal.turned(point.quality)
    what = "reached" if promise.has_target else "kept"
    to_be = f"{'at most' if goal.minimize else 'at least'} {least:.4f} was to be {what}"
    text = f"{goal.quality} {found:.4f} after {point.samples}, {promised:.4f} promised, {to_be}"
    answer = _answer(is_kept=is_kept, is_broken=is_broken)
    return Kept("quality", answer, text, Figure(promised), Figure(found))


def _memory(promise: Promise, shown: Measurement) -> Kept | None:
    """Of what the training process held, without others that it starts: a trial may have had none of them."""
    if not promise.memory_bytes:
        return None
    own_bytes = shown.own_peak_bytes
    if own_bytes is None:
        return _not_yet("memory", Figure(promise.memory_bytes), "not measured yet")
    ratio = own_bytes / promise.memory_bytes
    found, promised = map(units.format_bytes, (own_bytes, promise.memory_bytes))
    share = objective.memory_share(shown)
    of_all = "" if share is None else f", {share:.0%} of what there is"
    is_kept = own_bytes <= max(promise.memory_bytes * (1 + SLACK), promise.memory_bytes + _SLACK_BYTES)
    more = "" if is_kept else f": {ratio - 1:.0%} more"
    answer = Answer.HELD if is_kept else Answer.BROKEN
    text = f"{found}{of_all}, {promised} promised{more}"
    return Kept("memory", answer, text, Figure(promise.memory_bytes), Figure(own_bytes))


def _not_yet(what: str, promised: Figure, why: str) -> Kept:
    return Kept(what, Answer.UNDECIDED, why, promised, None)


def _answer(*, is_kept: bool, is_broken: bool) -> Answer:
    return Answer.HELD if is_kept else Answer.BROKEN if is_broken else Answer.UNDECIDED


def overall(answers: Sequence[Kept], outcome: Outcome | None) -> Answer:
    """Returns broken if one is, held if all are, and else not decided.

    Of a training whose `outcome` is a failure nothing held, however well it did before.
    """
    found = {one.answer for one in answers}
    if Answer.BROKEN in found:
        return Answer.BROKEN
    has_failed = outcome is not None and outcome.status is Status.FAILED
    return Answer.HELD if found == {Answer.HELD} and not has_failed else Answer.UNDECIDED
