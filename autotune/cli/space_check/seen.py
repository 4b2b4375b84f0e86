"""What the records of a run show: how it starts, steps, evaluates, and whether it resumes. Pure."""

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.core import units
from autotune.storage.records import NOTE, TRAIN_LOSS, is_mark

Records = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Seen:
    """Of a run's first attempt: seconds until its first record, its steps, and its evaluations.

    `steps` are of `step_samples` each, most often. An evaluation takes `evaluation_s`, and there is one
    `every` so many samples; None where there was none. `evaluating_share` is its part of the time.
    """

    start_s: float | None
    steps: int
    step_samples: int | None
    samples: int
    seconds: float
    evaluations: tuple[tuple[int, float], ...]
    every: int | None
    evaluation_s: float | None
    evaluating_share: float
    notes: tuple[str, ...] = ()  # what is doubtful in the records


def seen(records: Records, quality: str) -> Seen:
    """What `records` show, in which an evaluation has `quality`, in its user's sign."""
    mark, own = _first_attempt(records)
    evaluations = [r for r in own if quality in r]
    steps = [b["samples"] - a["samples"] for a, b in itertools.pairwise(own) if quality not in b]
    took = [b["at_s"] - a["at_s"] for a, b in itertools.pairwise(own) if quality in b]
    seconds = own[-1]["at_s"] - own[0]["at_s"] if own else 0.0
    at = [0, *(r["samples"] for r in evaluations)]
    gaps = [b - a for a, b in itertools.pairwise(at) if b > a]
    return Seen(
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
    """The mark of a run's first attempt, and the records up to the next one."""
    marks = [n for n, record in enumerate(records) if is_mark(record)]
    if not marks:
        return None, ()
    return records[marks[0]], records[marks[0] + 1 : marks[1] if len(marks) > 1 else None]


@dataclass(frozen=True)
class Likeness:
    """How far two runs differ at most where they have been equally far: at so many `points`."""

    points: int
    most: float

    @property
    def is_equal(self) -> bool:
        return self.most == 0.0


def likeness(one: Records, other: Records, quality: str) -> Likeness | None:
    """How alike two runs are in `quality`, or in their steps' loss; None: they have no point in common."""
    for name in (quality, TRAIN_LOSS):
        a, b = _curve(one, name), _curve(other, name)
        if common := a.keys() & b.keys():
            return Likeness(len(common), max(abs(a[at] - b[at]) for at in common))
    return None


def _curve(records: Records, name: str) -> dict[int, float]:
    """The number called `name` by samples, of the first attempt."""
    own = _first_attempt(records)[1]
    return {r["samples"]: n for r in own if (n := units.number(r.get(name))) is not None}


@dataclass(frozen=True)
class Resumed:
    """A run that was `stopped` after so many samples, and began again with a record of `begun` in all."""

    stopped: int
    begun: int
    is_anew: bool


def resumed(records: Records) -> Resumed | None:
    """What the second attempt did; None where it has no record."""
    first = _first_attempt(records)[1]
    second = _first_attempt(records[len(first) + 1 :])[1]
    if not first or not second:
        return None
    stopped, begun = first[-1]["samples"], second[0]["samples"]
    return Resumed(stopped, begun, is_anew=begun <= first[0]["samples"])
