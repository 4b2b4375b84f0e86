"""What readers have said who did not know which model they read: counts, shares, notes. Pure."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean

from autotune.compare.blind import CORRECT, MAJOR, MARKS, Unblinded
from autotune.judging.estimates import Figure

_LEVEL = 0.95


@dataclass(frozen=True)
class Marked:
    """What was said of the reports of a model, of which so many `reports` were marked.

    `correct` is the share that was marked so, and `harmless` that without a major error. What several readers
    say of a report counts as one, their mean: the intervals are over reports.
    """

    label: str
    reports: int
    correct_marks: int
    minor_errors: int
    major_errors: int
    correct: Figure
    harmless: Figure


@dataclass(frozen=True)
class Remark:
    """A note of a reader's on what a model wrote for a study; the mark may be empty."""

    label: str
    study: str
    reader: str
    mark: str
    note: str


@dataclass(frozen=True)
class Reading:
    """All that blind readers have said: of each model, and in their own words."""

    readers: tuple[str, ...]
    models: tuple[Marked, ...]
    remarks: tuple[Remark, ...]


def reading(said: Sequence[Unblinded], labels: Iterable[str]) -> Reading | None:
    """What was `said` of the models with these `labels`, in their order; None where nothing was."""
    if not said:
        return None
    by_model = {label: [one for one in said if label in one.labels] for label in labels}
    marked = {label: [one for one in found if one.answer.mark] for label, found in by_model.items()}
    return Reading(
        readers=tuple(sorted({one.reader for one in said})),
        models=tuple(_marked(label, found) for label, found in marked.items() if found),
        remarks=tuple(
            Remark(label, one.study, one.reader, one.answer.mark, one.answer.note)
            for label, found in by_model.items()
            for one in found
            if one.answer.note
        ),
    )


def _marked(label: str, said: Sequence[Unblinded]) -> Marked:
    by_study = defaultdict(list)
    for one in said:
        by_study[one.study].append(one.answer.mark)
    marks = [one.answer.mark for one in said]
    correct = [fmean(mark == CORRECT for mark in found) for found in by_study.values()]
    harmless = [fmean(mark != MAJOR for mark in found) for found in by_study.values()]
    correct_marks, minor_errors, major_errors = (marks.count(mark) for mark in MARKS)
    return Marked(
        label, len(by_study), correct_marks, minor_errors, major_errors, share(correct), share(harmless)
    )


def share(parts: Sequence[float]) -> Figure:
    """The mean of `parts`, each from 0 to 1, with Wilson's 95% interval, which few or equal parts do not
    make empty (Wilson, J. Am. Stat. Assoc. 22, 1927)."""
    n, p, z = len(parts), fmean(parts), NormalDist().inv_cdf((1 + _LEVEL) / 2)
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(p * (1 - p) / n + (z / (2 * n)) ** 2) / (1 + z * z / n)
    return Figure(p, max(0.0, middle - half), min(1.0, middle + half))
