"""A training as lines for people. Pure."""

from collections.abc import Mapping

from autotune.core import units
from autotune.core.trial import Measurement, Outcome, Status
from autotune.display import view
from autotune.judging import estimates, quality
from autotune.training.plan import Plan
from autotune.training.standing import Standing


def begun(plan: Plan) -> str:
    """What is trained, for how long, and what was promised of it."""
    unit = plan.unit
    length = "to its own end" if plan.samples is None else f"over {plan.samples} {unit}"
    known = plan.promise
    if known is None:
        return f"training {length}: {view.knobs(plan.config) or 'the baseline'}"
    of = f"trial {known.trial} of session {known.session}"
    speed = f", promised {view.speed(known.throughput)} {unit}/s" if known.throughput else ""
    return f"training {length} with {of}: {view.knobs(plan.config)}{speed}"


def progress(standing: Standing) -> str:
    """How far it is, how fast it is now, and how long it will take from here at that speed."""
    plan, per_s, shown = standing.plan, standing.recent_per_s, standing.measurement
    parts = [f"{standing.samples}{'' if plan.samples is None else f' of {plan.samples}'} {plan.unit}"]
    if per_s:
        parts.append(f"{per_s:.1f} {plan.unit}/s")
    if standing.left_s is not None:
        parts.append(f"{units.format_seconds(standing.left_s)} of training left")
    if standing.loss is not None:
        parts.append(f"loss {standing.loss:.4f}")
    if shown.peak_memory_bytes is not None:
        parts.append(f"memory {view.peak(shown)}")
    return ", ".join(parts)


def evaluation(record: Mapping[str, object], plan: Plan) -> str:
    """What an evaluation has found."""
    found = units.number(record.get(plan.quality))
    return f"after {record['samples']} {plan.unit}: {plan.quality} {view.quality(found)}"


def ended(outcome: Outcome, shown: Measurement, plan: Plan) -> str:
    """How it has ended, with its figures."""
    done = f"{outcome} after {shown.samples} {plan.unit}"
    if outcome.status is not Status.COMPLETED:
        return f"{done}: {outcome.reason}" if outcome.reason else done
    speed = view.speed(estimates.of_run(shown.throughput))
    found = quality.shown(shown.quality, plan.goal)
    return f"{done}: {speed} {plan.unit}/s, {plan.quality} {view.quality(found)}, memory {view.memory(shown)}"


def meanwhile(shown: Measurement) -> list[str]:
    """What others took of the machine, where it was more than a twentieth, and what slowed it down."""
    used = [f"others used {part:.0%} of the {what}" for what, part in shown.others.items()]
    slowed = "the GPU was slowed down for its heat or its power"
    return used + [slowed] * shown.throttled
