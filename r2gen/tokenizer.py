"""Tokenizes reports exactly as R2Gen does (cuhksz-nlp/R2Gen, modules/tokenizers.py).

Id 0 begins, ends and pads a report; words are 1..N in sorted order, with `<unk>` sorted in among them.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Literal, Self

Dataset = Literal["iu_xray", "mimic_cxr"]

UNKNOWN = "<unk>"

# `:-\[` is a range, from ":" to "[": hyphens stay, while `< = > @` (and capitals, already lowered) go.
_PUNCTUATION = re.compile(r"[.,?;*!%^&_+():-\[\]{}]")
_QUOTES_AND_SLASHES = str.maketrans("", "", "\"/\\'")

# The original's chains of str.replace, in its order. A repeat halves a run, so the counts matter.
_NUMBERING = (
    ("1. ", ""),
    *((f". {n}. ", ". ") for n in (2, 3, 4, 5)),
    *((f" {n}. ", ". ") for n in (2, 3, 4, 5)),
)
_REPLACEMENTS: dict[Dataset, tuple[tuple[str, str], ...]] = {
    "iu_xray": (("..", "."),) * 3 + _NUMBERING,
    "mimic_cxr": ((("\n", " "),) + (("__", "_"),) * 7 + (("  ", " "),) * 6 + (("..", "."),) * 7 + _NUMBERING),
}


class Tokenizer:
    """The vocabulary of one data set, and the text cleaning that its reports need."""

    def __init__(self, vocabulary: Sequence[str], dataset: Dataset) -> None:
        self.vocabulary = tuple(vocabulary)
        self.dataset = dataset
        self._ids = {word: i for i, word in enumerate(self.vocabulary, start=1)}

    @classmethod
    def from_reports(cls, reports: Iterable[str], dataset: Dataset, min_word_count: int) -> Self:
        """Builds a tokenizer from the words that occur at least `min_word_count` times in `reports`.

        The original counts the training split alone.
        """
        counts = Counter(word for report in reports for word in _clean(report, dataset).split())
        frequent = [word for word, count in counts.items() if count >= min_word_count]
        return cls(sorted([*frequent, UNKNOWN]), dataset)

    def clean(self, report: str) -> str:
        """Lowercases `report`, strips punctuation, and ends every sentence with " ."."""
        return _clean(report, self.dataset)

    def encode(self, report: str) -> list[int]:
        """Returns the ids of the cleaned report's words between two zeros; rare words are `<unk>`."""
        unknown = self._ids[UNKNOWN]
        return [0, *(self._ids.get(word, unknown) for word in self.clean(report).split()), 0]

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the words of `ids` up to the first 0 after the begin token."""
        words = ids[1:] if ids and ids[0] == 0 else ids
        return " ".join(self.vocabulary[i - 1] for i in takewhile(bool, words))


def _clean(report: str, dataset: Dataset) -> str:
    for old, new in _REPLACEMENTS[dataset]:
        report = report.replace(old, new)
    sentences = report.strip().lower().split(". ")
    return " . ".join(_clean_sentence(sentence) for sentence in sentences) + " ."


def _clean_sentence(sentence: str) -> str:
    return _PUNCTUATION.sub("", sentence.translate(_QUOTES_AND_SLASHES).strip().lower())
