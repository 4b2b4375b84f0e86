"""Tables of the marks and notes of blind readers."""

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import NormalDist, fmean

from r2gen.compared.answers import CORRECT, MAJOR, MARKS, Answer, id_of
from r2gen.compared.entries import Entry
from r2gen.compared.table import NOTHING, Table

_LEVEL = 0.95
Readers = Mapping[str, Mapping[str, Answer]]  # their answers by the id of the report
Models = Mapping[str, Sequence[Entry]]


def marks(readers: Readers, models: Models) -> Table:
    """Returns a row per model with marked reports: how often each mark was given, and shares of reports.

    The marks of several readers on one report are averaged: the intervals are over reports.
    """
    ids = {id_of(entry.id, entry.report) for entries in models.values() for entry in entries}
    gone = sum(name not in ids for answers in readers.values() for name in answers)
    note = (
        f"Marked without knowing the models by: {', '.join(sorted(readers))}. Intervals are 95%, over "
        "reports: the marks of several readers on one report count as their mean."
    )
    note += f" Answers on texts that no model has written do not count: {gone}." if gone else ""
    by_model = {model: _by_report(entries, readers) for model, entries in models.items()}
    rows = tuple((model, *_counted(given)) for model, given in by_model.items() if given)
    head = ("model", "reports", *MARKS, "share correct", "without a major error")
    return Table("Blind reading", head, rows, tuple(range(1, len(head))), note)


def notes(readers: Readers, models: Models) -> Table:
    """Returns a row per reader's note on a model's report."""
    rows = tuple(
        (model, entry.id, reader, answer.mark or NOTHING, answer.note)
        for model, entries in models.items()
        for entry in entries
        for reader, answer in _on(entry, readers)
        if answer.note
    )
    head = ("model", "study", "reader", "mark", "note")
    return Table("Notes of the readers", head, rows, is_detail=True)


def _on(entry: Entry, readers: Readers) -> Iterator[tuple[str, Answer]]:
    """Yields the readers who answered on a report, with their answers."""
    name = id_of(entry.id, entry.report)
    return ((reader, answers[name]) for reader, answers in sorted(readers.items()) if name in answers)


def _by_report(entries: Sequence[Entry], readers: Readers) -> list[Sequence[str]]:
    """Returns the marks of every marked report."""
    marked = ([answer.mark for _, answer in _on(entry, readers) if answer.mark] for entry in entries)
    return [given for given in marked if given]


def _counted(reports: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Returns the table cells of one model."""
    given = [mark for one in reports for mark in one]
    correct = share([fmean(mark == CORRECT for mark in one) for one in reports])
    harmless = share([fmean(mark != MAJOR for mark in one) for one in reports])
    shares = (f"{value:.0%} ({low:.0%} to {high:.0%})" for value, low, high in (correct, harmless))
    return (str(len(reports)), *(str(given.count(mark)) for mark in MARKS), *shares)


def share(parts: Sequence[float]) -> tuple[float, float, float]:
    """Returns the mean of `parts`, each from 0 to 1, with Wilson's 95% interval.

    Unlike the normal interval it is not empty for few or equal parts (Wilson, J. Am. Stat. Assoc. 22, 1927).
    """
    n, p, z = len(parts), fmean(parts), NormalDist().inv_cdf((1 + _LEVEL) / 2)
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(p * (1 - p) / n + (z / (2 * n)) ** 2) / (1 + z * z / n)
    return p, max(0.0, middle - half), min(1.0, middle + half)
