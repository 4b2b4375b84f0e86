"""How written reports compare with their references, which no n-gram score says by itself. Pure."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.compare.results import Written


@dataclass(frozen=True)
class Texts:
    """Figures of the reports for a whole split.

    `overlap` is the lexical overlap: the F1 of the words of a report and of its reference, each counted as
    often as it occurs (ROUGE-1, Lin, 2004), a mean over the studies. `length_ratio` is the words of all
    reports over those of all references (Papineni et al., 2002), None where no reference has a word.
    `distinct` is the share of the reports that are different texts.
    """

    overlap: float
    length_ratio: float | None
    distinct: float


def of(written: Sequence[Written]) -> Texts | None:
    """None where nothing was written. Words are what blanks separate, as in the reports' own scores."""
    if not written:
        return None
    reports, references = [w.report.split() for w in written], [w.reference.split() for w in written]
    overlaps = [_f1(Counter(a), Counter(b)) for a, b in zip(reports, references, strict=True)]
    words = sum(map(len, references))
    return Texts(
        overlap=math.fsum(overlaps) / len(overlaps),
        length_ratio=sum(map(len, reports)) / words if words else None,
        distinct=len({w.report for w in written}) / len(written),
    )


def _f1(one: Counter[str], other: Counter[str]) -> float:
    """Twice the words in common over all words (Dice, 1945); 1 of two empty texts."""
    total = one.total() + other.total()
    return 2 * (one & other).total() / total if total else 1.0
