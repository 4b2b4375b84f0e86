"""A training as lines for people. Pure."""

from collections.abc import Mapping, Sequence

from autotune.core import units
from autotune.core.trial import Measurement, Outcome, Status
from autotune.display import view
from autotune.judging import estimates, promise, quality
from autotune.judging.promise import Answer, Kept
from autotune.space.sections import Objective
from autotune.training.plan import Plan
from autotune.trials.reported import Report

_SHOWN_LOSS = "train_loss"


def begun(plan: Plan, unit: str) -> str:
    """What is trained, for how long, and what was promised of it."""
    length = "to its own end" if plan.samples is None else f"over {plan.samples} {unit}"
    known = plan.promise
    if known is None:
        return f"training {length}: {view.knobs(plan.config) or 'the baseline'}"
    of = f"trial {known.trial} of session {known.session}"
    speed = f", promised {view.speed(known.throughput)} {unit}/s" if known.throughput else ""
    return f"training {length} with {of}: {view.knobs(plan.config)}{speed}"


def progress(report: Report, plan: Plan, unit: str) -> str:
    """How far it is, how fast, and how long it will take from here."""
    done, rate = report.samples, estimates.of_run(report.measurement.throughput)
    parts = [f"{done}{'' if plan.samples is None else f' of {plan.samples}'} {unit}"]
    if rate is not None:
        parts.append(f"{rate.value:.1f} {unit}/s")
        if plan.samples is not None and rate.value > 0:
            left_s = max(0, plan.samples - done) / rate.value
            parts.append(f"{units.format_seconds(left_s)} of training left")
    parts += _loss(report)
    if report.measurement.peak_memory_bytes is not None:
        parts.append(f"memory {view.peak(report.measurement)}")
    return ", ".join(parts)


def _loss(report: Report) -> list[str]:
    losses = [record[_SHOWN_LOSS] for record in report.records if _SHOWN_LOSS in record]
    return [f"loss {losses[-1]:.4f}"] if losses and units.number(losses[-1]) is not None else []


def evaluation(record: Mapping[str, object], goal: Objective, unit: str) -> str:
    """What an evaluation has found."""
    found = units.number(record.get(goal.quality))
    return f"after {record['samples']} {unit}: {goal.quality} {view.quality(found)}"


def ended(outcome: Outcome, shown: Measurement, goal: Objective, unit: str) -> str:
    """How it has ended, with its figures."""
    speed = view.speed(estimates.of_run(shown.throughput))
    found = quality.shown(shown.quality, goal)
    figures = f"{speed} {unit}/s, {goal.quality} {view.quality(found)}, memory {view.memory(shown)}"
    if outcome.status is Status.COMPLETED:
        return f"completed after {shown.samples} {unit}: {figures}"
    why = f": {outcome.reason}" if outcome.reason else ""
    return f"{outcome} after {shown.samples} {unit}{why}"


def meanwhile(shown: Measurement) -> list[str]:
    """What kept the machine from a training for more than a twentieth of it."""
    used = [f"others used {part:.0%} of the {what}" for what, part in shown.others.items()]
    slowed = "the GPU was slowed down for its heat or its power"
    return used + [slowed] * shown.throttled


def verdict(found: Sequence[Kept], plan: Plan, seen: Sequence[str] = ()) -> list[str]:
    """Whether what was promised came, and what was `seen` that may be why not.

    Nothing where nothing was promised.
    """
    if plan.promise is None or not found:
        return []
    of = f"what session {plan.promise.session} promised of trial {plan.promise.trial}"
    heading = {
        Answer.HELD: f"Held: {of}",
        Answer.BROKEN: f"Did not hold: {of}",
        Answer.UNDECIDED: f"Not decided: {of}",
    }[promise.overall(found)]
    return [
        heading,
        *(f"- {one.what}: {one.answer}: {one.text}" for one in found),
        *(f"- seen meanwhile: {text}" for text in seen),
    ]
