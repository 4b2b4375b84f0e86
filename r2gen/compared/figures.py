"""Figures that compare a model's reports with their references and that no n-gram score shows."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from r2gen.compared.entries import Entry
from r2gen.compared.table import NOTHING, Table, percent

_NOTE = (
    "Precision, recall and F1 are of all clinical findings together. Lexical overlap is the F1 of the words "
    "of a report and of its reference (ROUGE-1), length ratio the words of all reports over those of all "
    "references."
)


def figures(models: Mapping[str, Sequence[Entry]]) -> Table:
    """Returns a row per model; each must have at least one report."""
    of_findings = ("findings precision", "findings recall", "findings F1")
    head = ("model", *of_findings, "lexical overlap", "length ratio", "distinct reports")
    rows = tuple((model, *_agreement(each), *_words(each)) for model, each in models.items())
    return Table("Clinical findings and words", head, rows, tuple(range(1, len(head))), _NOTE)


def findings(models: Mapping[str, Sequence[Entry]]) -> Table:
    """Returns a row per finding, in descending order of their frequency in the references."""
    every = [counts(entries) for entries in models.values()]
    agreed, missed, _ = every[0]
    names = {name for each in every for kind in each for name in kind}
    rows = tuple(
        (name, *(" / ".join(str(kind[name]) for kind in each) for each in every))
        for name in sorted(names, key=lambda name: (-agreed[name] - missed[name], name))
    )
    head = ("agreed / missed / invented", *models)
    return Table("Finding by finding", head, rows, tuple(range(1, len(head))), is_detail=True)


def counts(entries: Sequence[Entry]) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """Counts findings by name: in report and reference, only in the reference, only in the report."""
    pairs = [(set(e.found), set(e.true)) for e in entries]
    return (
        Counter(name for found, true in pairs for name in found & true),
        Counter(name for found, true in pairs for name in true - found),
        Counter(name for found, true in pairs for name in found - true),
    )


def _agreement(entries: Sequence[Entry]) -> tuple[str, str, str]:
    """Returns precision, recall and F1, micro-averaged over all findings of all studies."""
    agreed, missed, invented = (found.total() for found in counts(entries))
    return (
        percent(_ratio(agreed, agreed + invented)),
        percent(_ratio(agreed, agreed + missed)),
        percent(_ratio(2 * agreed, 2 * agreed + missed + invented)),
    )


def _words(entries: Sequence[Entry]) -> tuple[str, str, str]:
    """Returns lexical overlap, length ratio (Papineni et al., 2002) and the share of distinct texts."""
    words = [(Counter(e.report.split()), Counter(e.reference.split())) for e in entries]
    length = _ratio(sum(a.total() for a, _ in words), sum(b.total() for _, b in words))
    return (
        f"{math.fsum(overlap(a, b) for a, b in words) / len(words):.4f}",
        NOTHING if length is None else f"{length:.4f}",
        percent(len({e.report for e in entries}) / len(entries)),
    )


def overlap(one: Counter[str], other: Counter[str]) -> float:
    """Returns twice the words in common over all words (Dice, 1945); 1 for two empty texts."""
    total = one.total() + other.total()
    return 2 * (one & other).total() / total if total else 1.0


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None
