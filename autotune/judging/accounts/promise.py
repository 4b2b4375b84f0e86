"""Compares the figures that a session promised for settings with the training that follows. Pure.

A promise is a figure that was shown. It is held if the training certainly reaches 95% of it, whatever its
interval, and broken if the training certainly falls short given both intervals; else it is undecided. If
equal trials differed in speed, a difference of that size breaks no promise. A training is a single seed, so
its quality may be below the required one by the scatter between equal runs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from autotune.core import units
from autotune.core.measurement import Measurement
from autotune.core.trial import Outcome, Status, Trial
from autotune.judging.decisions import objective
from autotune.judging.decisions.history import History
from autotune.judging.measurement import curves, estimates
from autotune.judging.measurement.estimates import Figure
from autotune.space import lengths
from autotune.space.sections import Objective

SLACK = 0.05  # relative: a healthy machine differs as much from day to day
_SLACK_BYTES = 64 * 2**20  # equal trainings differ as much in memory: caches, libraries
_SCATTERS = 2.0  # SDs between equal runs beyond which a difference is not chance


class PromiseAnswer(StrEnum):
    HELD = "held"
    BROKEN = "did not hold"
    UNDECIDED = "not decided"


@dataclass(frozen=True)
class Promise:
    """The figures that a session has shown for a whole training with a trial's settings, None if unknown."""

    session: str
    trial: int
    samples: int  # of the training; with a target, those that the slowest run needed to reach it
    throughput: Figure | None  # with a 95% interval, if there is one
    quality: float | None  # after `samples`, higher is better; the target if there is one
    least: float | None  # quality to keep; the target if there is one
    scatter: float | None  # SD of the quality between equal runs
    memory_bytes: int | None  # of the training process alone
    origin: tuple[str, str]  # device and revision, as in a `Measurement`
    moved: float = 0.0  # largest relative difference in speed between equal trials
    has_target: bool = False


@dataclass(frozen=True)
class PromiseCheck:
    """The answer on one figure of a promise: speed, quality or memory."""

    what: str
    answer: PromiseAnswer
    text: str  # the reason, in a line


def promised(trial: Trial, history: History, session: str) -> Promise:
    quality, goal = history.quality(trial), history.space.objective
    quality_counts = quality is not None and not goal.takes_any_quality
    noise = history.noise
    needed = max(history.to_target.runs(trial) if quality_counts else (), default=None)  # by the slowest
    # A miniature ends its schedule where the whole training is in the middle of its own.
    quality_counts &= needed is not None or lengths.miniature(history.space) is None
    length = history.length(trial)
    return Promise(
        session=session,
        trial=trial.number,
        samples=length if needed is None else math.ceil(needed),
        throughput=history.throughput(trial),
        quality=(quality.value if quality else None) if needed is None else goal.aim,
        least=history.least_quality if quality_counts else None,
        scatter=noise * curves.gain(quality.value, history.start) if noise is not None and quality else None,
        memory_bytes=history.memory(trial).own_peak_bytes,
        origin=trial.measurement.origin,
        moved=max((share for _, _, share in history.speeds.disagreements()), default=0.0),
        has_target=needed is not None,
    )


def check(promise: Promise, run: Measurement, goal: Objective, unit: str) -> list[PromiseCheck]:
    """Returns the check of each promised figure, with a note if the device or the code is not the promise's.

    On another device, speed and memory are undecided.
    """
    device, code = promise.origin
    is_edited = bool(code) and run.revision not in {"", code}
    checks = []
    for checked in (_speed(promise, run, unit), _quality(promise, run, goal, unit), _memory(promise, run)):
        if checked is not None:
            is_moved = bool(device) and run.device not in {"", device} and checked.what != "quality"
            other = [f"on {device}, trained on {run.device}"] * is_moved + ["with other code"] * is_edited
            answer = PromiseAnswer.UNDECIDED if is_moved else checked.answer
            text = "; promise measured ".join([checked.text, *other])
            checks.append(PromiseCheck(checked.what, answer, text))
    return checks


def _speed(promise: Promise, run: Measurement, unit: str) -> PromiseCheck | None:
    """Checks the speed: HELD by the training's interval alone, BROKEN by both intervals."""
    if promise.throughput is None:
        return None
    speed = estimates.throughput_figure(run.throughput)
    if speed is None:
        return PromiseCheck("speed", PromiseAnswer.UNDECIDED, "not measured yet")
    ratio, least = estimates.divide(speed, promise.throughput), 1 - SLACK
    is_kept = speed.low is not None and speed.low >= least * promise.throughput.value
    is_broken = ratio.is_below(least / (1 + promise.moved))
    against = f"({promise.throughput.value:.1f} promised)"
    text = f"{speed.value:.1f} {unit}/s, {compare_speed(ratio.value)} {against}"
    if promise.moved > SLACK and not is_kept:
        text += f"; equal trials of that session were up to {promise.moved:.0%} apart"
    return PromiseCheck("speed", _answer(is_kept=is_kept, is_broken=is_broken), text)


def compare_speed(ratio: float) -> str:
    """Formats the `ratio` of a speed to the promised one: `as promised`, or `7% slower`."""
    if abs(ratio - 1) < SLACK:
        return "as promised"
    return f"{abs(ratio - 1):.0%} {'faster' if ratio > 1 else 'slower'}"


def _quality(promise: Promise, run: Measurement, goal: Objective, unit: str) -> PromiseCheck | None:
    """Checks the first evaluation after the promised number of samples."""
    if promise.least is None:
        return None
    least, promised = (goal.turned(value) for value in (promise.least, promise.quality or 0.0))
    reached = curves.samples_to_reach(run.curve, promise.least) if promise.has_target else None
    if reached is not None and reached <= promise.samples:
        when = f"after {reached:,.0f} {unit}, promised after {promise.samples:,}"
        return PromiseCheck("quality", PromiseAnswer.HELD, f"{goal.quality} {least:.4f} reached {when}")
    point = next((p for p in run.curve if p.samples >= promise.samples), None)
    if point is None:
        text = f"not yet evaluated after {promise.samples:,} {unit}"
        return PromiseCheck("quality", PromiseAnswer.UNDECIDED, text)
    room = _SCATTERS * (promise.scatter or 0.0)
    is_kept = point.quality >= promise.least
    is_broken = promise.scatter is not None and point.quality < promise.least - room
    quality = goal.turned(point.quality)
    required = f"{'at most' if goal.minimize else 'at least'} {least:.4f} required"
    text = f"{goal.quality} {quality:.4f} after {point.samples:,} {unit}, {promised:.4f} promised, {required}"
    return PromiseCheck("quality", _answer(is_kept=is_kept, is_broken=is_broken), text)


def _memory(promise: Promise, run: Measurement) -> PromiseCheck | None:
    if not promise.memory_bytes:
        return None
    own_bytes = run.own_peak_bytes  # without child processes
    if own_bytes is None:
        return PromiseCheck("memory", PromiseAnswer.UNDECIDED, "not measured yet")
    peak, promised = map(units.format_bytes, (own_bytes, promise.memory_bytes))
    share = objective.memory_share(run)
    of_all = "" if share is None else f" ({share:.0%} of the limit)"
    is_kept = own_bytes <= max(promise.memory_bytes * (1 + SLACK), promise.memory_bytes + _SLACK_BYTES)
    if is_kept:
        return PromiseCheck("memory", PromiseAnswer.HELD, f"{peak}{of_all}, {promised} promised")
    more = f"{own_bytes / promise.memory_bytes - 1:.0%} more than the promised {promised}"
    return PromiseCheck("memory", PromiseAnswer.BROKEN, f"{peak}{of_all}, {more}")


def _answer(*, is_kept: bool, is_broken: bool) -> PromiseAnswer:
    return PromiseAnswer.HELD if is_kept else PromiseAnswer.BROKEN if is_broken else PromiseAnswer.UNDECIDED


def overall(answers: Sequence[PromiseCheck], outcome: Outcome | None) -> PromiseAnswer:
    """Returns BROKEN if any answer is, HELD if all are and the training has not failed, else UNDECIDED."""
    kinds = {checked.answer for checked in answers}
    if PromiseAnswer.BROKEN in kinds:
        return PromiseAnswer.BROKEN
    has_failed = outcome is not None and outcome.status is Status.FAILED
    return PromiseAnswer.HELD if kinds == {PromiseAnswer.HELD} and not has_failed else PromiseAnswer.UNDECIDED
