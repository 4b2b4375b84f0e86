"""Corpus BLEU from what each pair adds to it, so that pairs can be left out, dealt again or counted at once.

Papineni et al., ACL 2002, with the details of pycocoevalcap's, which `metrics.score` gives: orders 1 to 4,
words parted by blanks, one reference a report.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

ORDERS = 4
# pycocoevalcap's, so that nothing is divided by zero.
_SMALL, _TINY = 1e-9, 1e-15

Gram = tuple[str, ...]
Sums = NDArray[
    np.int64
]  # [..., 10]: matches of each order, n-grams of each order, words, the reference's words


@dataclass(frozen=True)
class Counted:
    """A text's n-grams by order, equal ones numbered from 1.

    Two texts then share as many as BLEU's clipped count says: the lower of the two counts of every n-gram.
    """

    words: int
    grams: tuple[frozenset[tuple[Gram, int]], ...]

    @property
    def sizes(self) -> list[int]:
        """How many n-grams it has of each order."""
        return [len(grams) for grams in self.grams]


def counted(text: str) -> Counted:
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
    """What each report, scored against its reference, adds to a corpus's sums, [N, 10]."""
    return np.array([_row(*pair) for pair in zip(reports, references, strict=True)], dtype=np.int64)


def _row(report: Counted, reference: Counted) -> list[int]:
    matches = [len(a & b) for a, b in zip(report.grams, reference.grams, strict=True)]
    return [*matches, *report.sizes, report.words, reference.words]


def bleu_4(corpus: Sums) -> NDArray[np.float64]:
    """BLEU-4 of corpora whose pairs add up to `corpus` [..., 10]."""
    matches, guesses = corpus[..., :ORDERS], corpus[..., ORDERS : 2 * ORDERS]
    precision = ((matches + _TINY) / (guesses + _SMALL)).prod(axis=-1) ** (1 / ORDERS)
    ratio = (corpus[..., -2] + _TINY) / (corpus[..., -1] + _SMALL)
    found: NDArray[np.float64] = precision * np.exp(np.minimum(0.0, 1 - 1 / ratio))
    return found
