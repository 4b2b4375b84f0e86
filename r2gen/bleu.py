"""Corpus BLEU as a sum over pairs, so that pairs can be left out, shuffled or given the same report.

Papineni et al., ACL 2002, with the details of pycocoevalcap, as in `metrics.score`: orders 1 to 4, words
separated by blanks, one reference per report.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

ORDERS = 4
# pycocoevalcap's constants against division by zero.
_SMALL, _TINY = 1e-9, 1e-15

Gram = tuple[str, ...]
Sums = NDArray[
    np.int64
]  # [..., 10]: matches of each order, n-grams of each order, words, the reference's words


@dataclass(frozen=True)
class Counted:
    """The n-grams of a text by order, repeated ones numbered from 1.

    The intersection of two texts is then BLEU's clipped count: for every n-gram, the lower of its two counts.
    """

    words: int
    grams: tuple[frozenset[tuple[Gram, int]], ...]

    @property
    def sizes(self) -> list[int]:
        """The number of n-grams of each order."""
        return [len(grams) for grams in self.grams]


def count_ngrams(text: str) -> Counted:
    words = text.split()
    return Counted(len(words), tuple(_numbered(words, order) for order in range(1, ORDERS + 1)))


def _numbered(words: Sequence[str], order: int) -> frozenset[tuple[Gram, int]]:
    seen: dict[Gram, int] = {}
    numbered = set()
    for first in range(len(words) - order + 1):
        gram = tuple(words[first : first + order])
        seen[gram] = seen.get(gram, 0) + 1
        numbered.add((gram, seen[gram]))
    return frozenset(numbered)


def sums(reports: Sequence[Counted], references: Sequence[Counted]) -> Sums:
    """Returns each report's contribution to the corpus sums, scored against its reference, [N, 10]."""
    return np.array([_row(*pair) for pair in zip(reports, references, strict=True)], dtype=np.int64)


def _row(report: Counted, reference: Counted) -> list[int]:
    matches = [len(a & b) for a, b in zip(report.grams, reference.grams, strict=True)]
    return [*matches, *report.sizes, report.words, reference.words]


def bleu_4(corpus: Sums) -> NDArray[np.float64]:
    """Returns BLEU-4 of corpora with the sums `corpus` [..., 10]."""
    matches, guesses = corpus[..., :ORDERS], corpus[..., ORDERS : 2 * ORDERS]
    precision = ((matches + _TINY) / (guesses + _SMALL)).prod(axis=-1) ** (1 / ORDERS)
    ratio = (corpus[..., -2] + _TINY) / (corpus[..., -1] + _SMALL)
    found: NDArray[np.float64] = precision * np.exp(np.minimum(0.0, 1 - 1 / ratio))
    return found
