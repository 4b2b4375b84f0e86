"""Findings of a check as lines, with remedies. Pure."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from autotune.check.runs import Run
from autotune.check.seen import Likeness, ObservedRun, Resumed
from autotune.core import units
from autotune.core.settings import SEED
from autotune.core.trial import Status
from autotune.doctor.examine import Capability
from autotune.space import configurations
from autotune.space.space import Space

_RUNS = 6  # time of a check, in multiples of one evaluation interval: three runs, and a margin
_FEWEST_EVALUATIONS = 2
_MOST_SHOWN = 3


@dataclass(frozen=True)
class Checked:
    """The results of a check; None for a result that it had no time for."""

    space: Space
    run: Run
    seen: ObservedRun
    slots: int
    again: Likeness | None = None  # of the first run and one with the same seed
    other: Likeness | None = None  # of the first run and one with another seed
    resumed: Resumed | None = None  # the second run, stopped and resumed


def is_ready(checked: Checked) -> bool:
    """Returns True if a search could start: its first trial would have a speed and a quality."""
    return (
        not checked.run.has_failed
        and checked.run.measurement.throughput is not None
        and bool(checked.seen.evaluations)
    )


def findings(checked: Checked) -> Iterator[Capability]:
    """Yields all findings, in the order in which a search depends on them."""
    yield _start(checked)
    if checked.run.has_failed or not checked.seen.steps:
        return
    yield _steps(checked.seen, checked.space)
    yield _speed(checked)
    yield _memory(checked)
    yield _evaluation(checked)
    yield _quality(checked)
    yield _seed(checked)
    yield _resume(checked)
    if is_ready(checked):
        yield _length(checked)


def _longer(seen: ObservedRun) -> str:
    """Returns the advice to give the check more time, enough for all its runs."""
    rate = seen.samples / seen.seconds if seen.seconds else 0.0
    if not (seen.every and rate and seen.start_s is not None):
        return "check for longer, such as --time 30m"
    one_s = seen.start_s + seen.every / rate
    return f"check for longer, such as --time {math.ceil(_RUNS * one_s / 60)}m"


def _start(checked: Checked) -> Capability:
    run, seen = checked.run, checked.seen
    if run.has_failed and run.outcome is not None:
        remedy = "see its last lines below" if run.log else "fix that"
        how = "failed" if run.outcome.status is Status.FAILED else "was interrupted"
        return Capability("starts", False, f"the trial {how}: {run.outcome.reason or run.outcome}", remedy)
    if seen.start_s is None:
        return Capability("starts", False, "no training step was seen within the time", _longer(seen))
    return Capability("starts", True, f"training was under way after {seconds(seen.start_s)}")


def _steps(seen: ObservedRun, space: Space) -> Capability:
    size = f", {seen.step_samples} {space.unit} each" if seen.step_samples else ""
    counted = f"{seen.steps} in {seconds(seen.seconds)}{size}"
    return Capability("steps", True, "; ".join([counted, *seen.notes]))


def _speed(checked: Checked) -> Capability:
    throughput = checked.run.measurement.throughput
    if throughput is None:
        detail = "not known: too few steps between evaluations"
        return Capability("speed", False, detail, _longer(checked.seen))
    interval = f" ± {throughput.half_width_per_s:.3g}" if throughput.half_width_per_s is not None else ""
    speed = f"{throughput.samples_per_s:.4g}{interval} {checked.space.unit}/s"
    return Capability("speed", True, f"{speed}, over {throughput.steps} steps after the warm-up")


def _memory(checked: Checked) -> Capability:
    peak_bytes = checked.run.measurement.peak_memory_bytes
    if peak_bytes is None:
        remedy = "nothing; no trial is refused for its memory"
        return Capability("memory", False, "the peak was not measured", remedy)
    limit_bytes = checked.run.measurement.memory_limit_bytes
    limit = f" of {units.format_bytes(limit_bytes)}" if limit_bytes else ""
    return Capability("memory", True, f"{units.format_bytes(peak_bytes)}{limit} at its peak")


def _evaluation(checked: Checked) -> Capability:
    seen, samples = checked.seen, checked.space.budget.samples_per_trial
    if seen.every is None:
        detail = f"none within {seen.samples:,} {checked.space.unit}, {seconds(seen.seconds)} of training"
        return Capability("evaluations", False, detail, f"evaluate more often, or {_longer(seen)}")
    count = evaluations(checked)
    took = f", {seconds(seen.evaluation_s)} each" if seen.evaluation_s is not None else ""
    detail = (
        f"one every {seen.every:,} {checked.space.unit}{took}, {seen.evaluating_share:.0%} of the time; "
        f"a trial of {samples:,} has {count}"
    )
    remedy = f"raise samples_per_trial to {_FEWEST_EVALUATIONS * seen.every}, or evaluate more often"
    return Capability("evaluations", count >= _FEWEST_EVALUATIONS, detail, remedy)


def evaluations(checked: Checked) -> int:
    """Returns how many evaluations a trial has; it ends with the first one after its last sample."""
    every = checked.seen.every or checked.space.budget.samples_per_trial
    return math.ceil(checked.space.budget.samples_per_trial / every)


def _quality(checked: Checked) -> Capability:
    name, measured = checked.space.objective.quality, checked.seen.evaluations
    if not measured:
        remedy = f"yield, print or report {name} with every evaluation"
        return Capability("quality", False, f"no number was found for {name}", remedy)
    values = ", ".join(f"{value:.5g} after {samples:,}" for samples, value in measured[:_MOST_SHOWN])
    more = f", and {len(measured) - _MOST_SHOWN} more" if len(measured) > _MOST_SHOWN else ""
    return Capability("quality", True, f"{name} {values} {checked.space.unit}{more}")


def _seed(checked: Checked) -> Capability:
    again, other = checked.again, checked.other
    if again is None or other is None:
        detail = "not checked: the time was too short for two more runs"
        return Capability("seed", False, detail, _longer(checked.seen))
    if not again.is_equal:
        detail = f"two runs with the same seed differ by {again.most:.2g}, as runs of a search will"
        return Capability("seed", True, detail)
    if other.is_equal:
        remedy = f"let the training use its {SEED}; a command without a setting for one has `seed: hook`"
        detail = "ignored: another seed gives the same curve, so the noise between runs stays unknown"
        return Capability("seed", False, detail, remedy)
    detail = f"the same seed gives the same curve, another seed differs by {other.most:.2g}"
    return Capability("seed", True, detail)


def _resume(checked: Checked) -> Capability:
    if checked.resumed is None:
        return Capability(
            "resume", False, "not checked: the time was too short for it", _longer(checked.seen)
        )
    stopped, begun = f"stopped after {checked.resumed.stopped:,} {checked.space.unit}", checked.resumed.begun
    if not checked.resumed.is_anew:
        return Capability("resume", True, f"{stopped}, it continued at {begun:,}")
    detail = f"{stopped}, it started from the beginning"
    remedy = "nothing, if trials are short; otherwise have it save a checkpoint and resume from it"
    return Capability("resume", False, detail, remedy)


def trial_s(checked: Checked) -> float:
    """Returns the estimated seconds of a baseline trial."""
    throughput, seen = checked.run.measurement.throughput, checked.seen
    samples = evaluations(checked) * (seen.every or 0)
    training_s = samples / throughput.samples_per_s if throughput else 0.0
    return (seen.start_s or 0.0) + training_s + evaluations(checked) * (seen.evaluation_s or 0.0)


def _length(checked: Checked) -> Capability:
    """Returns how long a search takes at most, if every trial takes as long as the baseline."""
    budget, one_s = checked.space.budget, trial_s(checked)
    listed = configurations.allowed(checked.space)
    trials = min(budget.trials, len(listed) if listed is not None else budget.trials)
    total_s = one_s * math.ceil(trials / checked.slots)
    detail = f"{trials} trials of {seconds(one_s)}: up to {seconds(total_s)}"
    if budget.repeats:
        detail += f", and up to {seconds(2 * budget.repeats * one_s)} more to confirm the winner"
    if budget.time is not None:
        detail += f"; it ends after {seconds(budget.time)}"
    return Capability("a search", True, detail)


def seconds(value_s: float) -> str:
    """Formats seconds, short times with a fraction."""
    return f"{value_s:.2g} s" if value_s < 10 else units.format_seconds(value_s)
