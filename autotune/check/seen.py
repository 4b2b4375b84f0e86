"""Evaluates the records of a run: start, steps, evaluations, and resuming. Pure."""

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.core import units
from autotune.core.record_names import NOTE, TRAIN_LOSS
from autotune.storage.records import is_mark

Records = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class ObservedRun:
    """The figures of a run's first attempt; None if unknown."""

    start_s: float | None  # until the first record
    steps: int
    step_samples: int | None  # most frequent number of samples per step
    samples: int
    seconds: float  # from first to last record
    evaluations: tuple[tuple[int, float], ...]  # (samples, quality)
    every: int | None  # samples between evaluations
    evaluation_s: float | None  # mean
    evaluating_share: float  # of `seconds`
    notes: tuple[str, ...] = ()  # doubts about the records


def seen(records: Records, quality: str) -> ObservedRun:
    """Returns the figures of `records`; those with a `quality`, in the user's sign, are evaluations."""
    mark, own = _first_attempt(records)
    evaluations = [r for r in own if quality in r]
    steps = [b["samples"] - a["samples"] for a, b in itertools.pairwise(own) if quality not in b]
    took = [b["at_s"] - a["at_s"] for a, b in itertools.pairwise(own) if quality in b]
    seconds = own[-1]["at_s"] - own[0]["at_s"] if own else 0.0
    at = [0, *(r["samples"] for r in evaluations)]
    gaps = [b - a for a, b in itertools.pairwise(at) if b > a]
    return ObservedRun(
        start_s=own[0]["at_s"] - mark["clock_s"] if own and mark else None,
        steps=len(own) - len(evaluations),
        step_samples=statistics.mode(steps) if steps else None,
        samples=own[-1]["samples"] if own else 0,
        seconds=seconds,
        evaluations=tuple(
            (r["samples"], n) for r in evaluations if (n := units.number(r[quality])) is not None
        ),
        every=round(statistics.median(gaps)) if gaps else None,
        evaluation_s=statistics.fmean(took) if took else None,
        evaluating_share=sum(took) / seconds if seconds else 0.0,
        notes=tuple(r[NOTE] for r in own if NOTE in r),
    )


def _first_attempt(records: Records) -> tuple[Mapping[str, Any] | None, Records]:
    """Returns the mark of a run's first attempt, and its records."""
    marks = [n for n, record in enumerate(records) if is_mark(record)]
    if not marks:
        return None, ()
    return records[marks[0]], records[marks[0] + 1 : marks[1] if len(marks) > 1 else None]


@dataclass(frozen=True)
class Likeness:
    """The largest difference between two runs, over the `points` sample counts at which both have a value."""

    points: int
    most: float

    @property
    def is_equal(self) -> bool:
        return self.most == 0.0


def likeness(one: Records, other: Records, quality: str) -> Likeness | None:
    """Compares two runs in `quality`, else in training loss; None if they share no point."""
    for name in (quality, TRAIN_LOSS):
        a, b = _curve(one, name), _curve(other, name)
        if common := a.keys() & b.keys():
            return Likeness(len(common), max(abs(a[at] - b[at]) for at in common))
    return None


def _curve(records: Records, name: str) -> dict[int, float]:
    """Returns the values of `name` in the first attempt, by samples."""
    own = _first_attempt(records)[1]
    return {r["samples"]: n for r in own if (n := units.number(r.get(name))) is not None}


@dataclass(frozen=True)
class Resumed:
    """Where a run was stopped and where it resumed."""

    stopped: int  # samples at which it stopped
    begun: int  # samples of its first record after resuming
    is_anew: bool  # began from the start


def resumed(records: Records) -> Resumed | None:
    """Returns how the second attempt began; None if it has no records."""
    first = _first_attempt(records)[1]
    second = _first_attempt(records[len(first) + 1 :])[1]
    if not first or not second:
        return None
    stopped, begun = first[-1]["samples"], second[0]["samples"]
    return Resumed(stopped, begun, is_anew=begun <= first[0]["samples"])
