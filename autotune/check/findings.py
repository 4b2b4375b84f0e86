"""What a search would see of a baseline that ran briefly, with remedies for what is missing. Pure."""

import itertools
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from autotune.core import units
from autotune.core.measurement import Measurement
from autotune.core.record_names import NOTE, TRAIN_LOSS
from autotune.core.settings import SEED
from autotune.core.trial import Outcome, Status
from autotune.doctor.examine import Capability
from autotune.space import configurations
from autotune.space.space import Space
from autotune.storage.records import is_mark

_RUNS = 6  # time of a check, in multiples of one evaluation interval: three runs, and a margin
FEWEST_EVALUATIONS = 2
_MOST_SHOWN = 3

Records = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Run:
    """The records and marks of a run's attempts, and its outcome, which is None if it was stopped."""

    records: Records = ()
    outcome: Outcome | None = None
    measurement: Measurement = field(default_factory=Measurement)
    log: Sequence[str] = ()

    @property
    def has_failed(self) -> bool:
        return self.outcome is not None and self.outcome.status in {Status.FAILED, Status.INTERRUPTED}


class Observed:
    """The figures of a run's first attempt; None if unknown. Records with a `quality` are evaluations."""

    def __init__(self, records: Records, quality: str) -> None:
        own, pairs = _attempt(records, 0), list(itertools.pairwise(_attempt(records, 0)))
        evaluations, mark = [r for r in own if quality in r], next(filter(is_mark, records), None)
        steps = [b["samples"] - a["samples"] for a, b in pairs if quality not in b]
        took = [b["at_s"] - a["at_s"] for a, b in pairs if quality in b]
        gaps = [b - a for a, b in itertools.pairwise([0, *(r["samples"] for r in evaluations)]) if b > a]
        self.start_s = own[0]["at_s"] - mark["clock_s"] if own and mark else None  # until the first record
        self.steps = len(own) - len(evaluations)
        self.step_samples = statistics.mode(steps) if steps else None  # the most frequent number
        self.samples = own[-1]["samples"] if own else 0
        self.seconds = own[-1]["at_s"] - own[0]["at_s"] if own else 0.0  # from first to last record
        self.evaluations = [  # (samples, quality)
            (r["samples"], n) for r in evaluations if (n := units.number(r[quality])) is not None
        ]
        self.every = round(statistics.median(gaps)) if gaps else None  # samples between evaluations
        self.evaluation_s = statistics.fmean(took) if took else None
        self.evaluating_share = sum(took) / self.seconds if self.seconds else 0.0
        self.notes = [r[NOTE] for r in own if NOTE in r]  # doubts about the records


def _attempt(records: Records, number: int) -> Records:
    """Returns the records of a run's attempt, without its mark; empty if there was none."""
    marks = [*(n for n, record in enumerate(records) if is_mark(record)), len(records), len(records)]
    return records[marks[number] + 1 : marks[number + 1]]


def largest_difference(one: Records, other: Records, quality: str) -> float | None:
    """Compares two runs at equal samples in `quality`, else in training loss; None if they share no point."""
    for name in (quality, TRAIN_LOSS):
        a, b = (
            {r["samples"]: n for r in _attempt(run, 0) if (n := units.number(r.get(name))) is not None}
            for run in (one, other)
        )
        if common := a.keys() & b.keys():
            return max(abs(a[at] - b[at]) for at in common)
    return None


class Resumed(NamedTuple):
    stopped: int  # samples at which a run was stopped
    continued: int | None  # samples of its first record after that; None if it started from the beginning


def resumed(records: Records) -> Resumed | None:
    """Returns how the second attempt began; None if it has no records."""
    first, second = _attempt(records, 0), _attempt(records, 1)
    if not first or not second:
        return None
    begun = second[0]["samples"]
    return Resumed(first[-1]["samples"], None if begun <= first[0]["samples"] else begun)


@dataclass(frozen=True)
class Checked:
    """The results of a check; None for a result that it had no time for."""

    space: Space
    run: Run
    slots: int
    again: float | None = None  # largest difference of the first run and one with the same seed
    other: float | None = None  # and one with another seed
    resumed: Resumed | None = None  # the second run, stopped and resumed

    @property
    def seen(self) -> Observed:
        return Observed(self.run.records, self.space.objective.quality)

    @property
    def is_ready(self) -> bool:
        """True if a search could start: its first trial would have a speed and a quality."""
        measured = self.run.measurement.throughput
        return not self.run.has_failed and measured is not None and bool(self.seen.evaluations)


def findings(checked: Checked) -> Iterator[Capability]:
    """Yields all findings, in the order in which a search depends on them."""
    seen, unit = checked.seen, checked.space.unit
    yield _start(checked.run, seen)
    if checked.run.has_failed or not seen.steps:
        return
    size = f", {seen.step_samples} {unit} each" if seen.step_samples else ""
    yield Capability(
        "steps", True, "; ".join([f"{seen.steps} in {seconds(seen.seconds)}{size}", *seen.notes])
    )
    yield _speed(checked, seen)
    yield _memory(checked.run.measurement)
    yield _evaluation(checked, seen)
    yield _quality(checked.space, seen)
    yield _seed(checked, seen)
    yield _resume(checked, seen)
    if checked.is_ready:
        yield _length(checked, seen)


def _longer(seen: Observed) -> str:
    """Returns the advice to give the check more time, enough for all its runs."""
    rate = seen.samples / seen.seconds if seen.seconds else 0.0
    if not (seen.every and rate and seen.start_s is not None):
        return "check for longer, such as --time 30m"
    one_s = seen.start_s + seen.every / rate
    return f"check for longer, such as --time {math.ceil(_RUNS * one_s / 60)}m"


def _start(run: Run, seen: Observed) -> Capability:
    if run.has_failed and run.outcome is not None:
        remedy = "see its last lines below" if run.log else "fix that"
        how = "failed" if run.outcome.status is Status.FAILED else "was interrupted"
        return Capability("starts", False, f"the trial {how}: {run.outcome.reason or run.outcome}", remedy)
    if seen.start_s is None:
        return Capability("starts", False, "no training step was seen within the time", _longer(seen))
    return Capability("starts", True, f"training was under way after {seconds(seen.start_s)}")


def _speed(checked: Checked, seen: Observed) -> Capability:
    throughput = checked.run.measurement.throughput
    if throughput is None:
        return Capability("speed", False, "not known: too few steps between evaluations", _longer(seen))
    interval = f" ± {throughput.half_width_per_s:.3g}" if throughput.half_width_per_s is not None else ""
    speed = f"{throughput.samples_per_s:.4g}{interval} {checked.space.unit}/s"
    return Capability("speed", True, f"{speed}, over {throughput.steps} steps after the warm-up")


def _memory(measured: Measurement) -> Capability:
    peak_bytes, limit_bytes = measured.peak_memory_bytes, measured.memory_limit_bytes
    if peak_bytes is None:
        remedy = "nothing; no trial is refused for its memory"
        return Capability("memory", False, "the peak was not measured", remedy)
    limit = f" of {units.format_bytes(limit_bytes)}" if limit_bytes else ""
    return Capability("memory", True, f"{units.format_bytes(peak_bytes)}{limit} at its peak")


def _evaluation(checked: Checked, seen: Observed) -> Capability:
    samples, unit = checked.space.budget.samples_per_trial, checked.space.unit
    if seen.every is None:
        detail = f"none within {seen.samples:,} {unit}, {seconds(seen.seconds)} of training"
        return Capability("evaluations", False, detail, f"evaluate more often, or {_longer(seen)}")
    count = _count_evaluations(checked.space, seen)
    took = f", {seconds(seen.evaluation_s)} each" if seen.evaluation_s is not None else ""
    detail = (
        f"one every {seen.every:,} {unit}{took}, {seen.evaluating_share:.0%} of the time; "
        f"a trial of {samples:,} has {count}"
    )
    fewest = min(FEWEST_EVALUATIONS, checked.space.budget.evaluations_per_trial)
    remedy = f"raise samples_per_trial to {fewest * seen.every}, or evaluate more often"
    return Capability("evaluations", count >= fewest, detail, remedy)


def _count_evaluations(space: Space, seen: Observed) -> int:
    """Returns how many evaluations a trial has; it ends with the first one after its last sample."""
    return math.ceil(space.budget.samples_per_trial / (seen.every or space.budget.samples_per_trial))


def _quality(space: Space, seen: Observed) -> Capability:
    name, measured = space.objective.quality, seen.evaluations
    if not measured:
        remedy = f"yield, print or report {name} with every evaluation"
        return Capability("quality", False, f"no number was found for {name}", remedy)
    values = ", ".join(f"{value:.5g} after {samples:,}" for samples, value in measured[:_MOST_SHOWN])
    more = f", and {len(measured) - _MOST_SHOWN} more" if len(measured) > _MOST_SHOWN else ""
    return Capability("quality", True, f"{name} {values} {space.unit}{more}")


def _seed(checked: Checked, seen: Observed) -> Capability:
    again, other = checked.again, checked.other
    if again is None or other is None:
        detail = "not checked: the time was too short for two more runs"
        return Capability("seed", False, detail, _longer(seen))
    if again:
        detail = f"two runs with the same seed differ by {again:.2g}, as runs of a search will"
        return Capability("seed", True, detail)
    if not other:
        remedy = f"let the training use its {SEED}; a command without a setting for one has `seed: hook`"
        detail = "ignored: another seed gives the same curve, so the noise between runs stays unknown"
        return Capability("seed", False, detail, remedy)
    detail = f"the same seed gives the same curve, another seed differs by {other:.2g}"
    return Capability("seed", True, detail)


def _resume(checked: Checked, seen: Observed) -> Capability:
    if checked.resumed is None:
        return Capability("resume", False, "not checked: the time was too short for it", _longer(seen))
    stopped = f"stopped after {checked.resumed.stopped:,} {checked.space.unit}"
    if checked.resumed.continued is not None:
        return Capability("resume", True, f"{stopped}, it continued at {checked.resumed.continued:,}")
    remedy = "nothing, if trials are short; otherwise have it save a checkpoint and resume from it"
    return Capability("resume", False, f"{stopped}, it started from the beginning", remedy)


def _length(checked: Checked, seen: Observed) -> Capability:
    """Returns how long a search takes at most, if every trial takes as long as the baseline."""
    budget, throughput = checked.space.budget, checked.run.measurement.throughput
    count = _count_evaluations(checked.space, seen)
    training_s = count * (seen.every or 0) / throughput.samples_per_s if throughput else 0.0
    one_s = (seen.start_s or 0.0) + training_s + count * (seen.evaluation_s or 0.0)
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
