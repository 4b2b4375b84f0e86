"""Messages about a training, one line each. Pure."""

from collections.abc import Mapping

from autotune.core import units
from autotune.core.measurement import Measurement
from autotune.core.trial import Outcome, Status
from autotune.display import rows, view, words
from autotune.training.plan import TrainingPlan
from autotune.training.standing import TrainingStatus


def begun(plan: TrainingPlan) -> str:
    """Says what is trained, for how long, and what its session promised."""
    unit = plan.metric.unit
    length = "to its own end" if plan.samples is None else f"over {plan.samples} {unit}"
    known = plan.promise
    if known is None:
        return f"training {length}: {view.knobs(plan.config) or 'the baseline'}"
    of = f"trial {known.trial} of session {known.session}"
    speed = f", measured {words.rate(known.throughput)} {unit}/s" if known.throughput else ""
    return f"training {length} with {of}: {view.knobs(plan.config)}{speed}"


def done(samples: int, planned: int | None, unit: str) -> str:
    """Returns e.g. `12,000 of 20,000 samples`; without the total if unknown."""
    of = "" if planned is None else f" of {words.count(planned)}"
    return f"{words.count(samples)}{of} {unit}"


def progress(standing: TrainingStatus) -> str:
    """Says how far it is, its current speed, and the time left at that speed."""
    plan, shown = standing.plan, standing.measurement
    figures = {
        f"{words.rate(standing.recent_per_s)} {plan.metric.unit}/s": standing.recent_per_s,
        f"{words.duration(standing.left_s)} of training left": standing.left_s,
        f"loss {words.score(standing.loss)}": standing.loss,
        f"memory {peak(shown)}": shown.peak_memory_bytes,
    }
    known = (text for text, value in figures.items() if value is not None)
    return ", ".join([done(standing.samples, plan.samples, plan.metric.unit), *known])


def peak(shown: Measurement) -> str:
    return words.narrow_peak(shown.peak_memory_bytes, is_rising=shown.memory_is_rising)


def evaluation(record: Mapping[str, object], plan: TrainingPlan) -> str:
    """Returns the result of an evaluation."""
    quality = units.number(record.get(plan.metric.name))
    return f"after {record['samples']} {plan.metric.unit}: {plan.metric.name} {words.score(quality)}"


def ended(outcome: Outcome, shown: Measurement, plan: TrainingPlan) -> str:
    """Says how it has ended, with its figures."""
    done = f"{outcome} after {shown.samples} {plan.metric.unit}"
    if outcome.status is not Status.COMPLETED:
        return f"{done}: {outcome.reason}" if outcome.reason else done
    return f"{done}: {rows.of_run(shown, plan.goal).line(plan.metric.unit, plan.metric.name)}"


def meanwhile(shown: Measurement) -> list[str]:
    """Says what other programs used of the machine, if more than a twentieth, and what slowed it down."""
    used = [f"other programs used {part:.0%} of the {what}" for what, part in shown.others.items()]
    slowed = "the GPU was slowed down for its heat or its power"
    return used + [slowed] * shown.throttled
