"""Messages about a training, one line each. Pure."""

from collections.abc import Mapping

from autotune.core import units
from autotune.core.measurement import Measurement
from autotune.core.trial import Outcome, Status
from autotune.display import rows, view, words
from autotune.training.plan import TrainingPlan
from autotune.training.watch import TrainingStatus


def begun(plan: TrainingPlan) -> str:
    """Returns a line on what is trained, for how long, and the speed that the session measured."""
    unit = plan.metric.unit
    length = "to its own end" if plan.samples is None else f"for {plan.samples:,} {unit}"
    if plan.promise is None:
        return f"training {length}: {view.knobs(plan.config) or 'the baseline'}"
    trial, session, throughput = plan.promise.trial, plan.promise.session, plan.promise.throughput
    speed = f", measured {words.rate(throughput)} {unit}/s" if throughput else ""
    return f"training {length} with trial {trial} of session {session}: {view.knobs(plan.config)}{speed}"


def done(samples: int, planned: int | None, unit: str) -> str:
    """Returns e.g. `12,000 of 20,000 samples`; without the total if unknown."""
    of = "" if planned is None else f" of {words.count(planned)}"
    return f"{words.count(samples)}{of} {unit}"


def progress(status: TrainingStatus) -> str:
    """Returns a line with the samples so far, the current speed, and the time left at that speed."""
    plan, measured = status.plan, status.measurement
    figures = {
        f"{words.rate(status.recent_per_s)} {plan.metric.unit}/s": status.recent_per_s,
        f"{words.duration(status.left_s)} of training left": status.left_s,
        f"loss {words.score(status.loss)}": status.loss,
        f"memory {peak(measured)}": measured.peak_memory_bytes,
    }
    known = (text for text, value in figures.items() if value is not None)
    return ", ".join([done(status.samples, plan.samples, plan.metric.unit), *known])


def peak(measured: Measurement) -> str:
    return words.narrow_peak(measured.peak_memory_bytes, is_rising=measured.memory_is_rising)


def evaluation(record: Mapping[str, object], plan: TrainingPlan) -> str:
    quality = units.number(record.get(plan.metric.name))
    return f"after {record['samples']:,} {plan.metric.unit}: {plan.metric.name} {words.score(quality)}"


def ended(outcome: Outcome, measured: Measurement, plan: TrainingPlan) -> str:
    done = f"{outcome} after {measured.samples:,} {plan.metric.unit}"
    if outcome.status is not Status.COMPLETED:
        return f"{done}: {outcome.reason}" if outcome.reason else done
    return f"{done}: {rows.run_figures(measured, plan.goal).line(plan.metric.unit, plan.metric.name)}"


def contention(measured: Measurement) -> list[str]:
    """Returns lines on other programs that used over 5% of a part of the machine, and on a throttled GPU."""
    used = [f"other programs used {share:.0%} of the {name}" for name, share in measured.others.items()]
    slowed = "the GPU was slowed down by heat or its power limit"
    return used + [slowed] * measured.throttled
