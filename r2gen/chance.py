"""The chance level of a score: the best constant report, the same for every study."""

import hashlib
from collections import Counter
from collections.abc import Sequence

import numpy as np

from r2gen import bleu, cache, metrics

FORMAT = 1


def chance(candidates: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Returns the scores of the best constant report of `candidates`, named as in `metrics.score`.

    They are cached under a digest of `candidates` and `references`, so they are computed once per data set.
    """

    def compute() -> dict[str, float]:
        constant = best_constant(candidates, references)
        return metrics.score([constant] * len(references), references)

    return cache.remembered(f"chance-{_digest(candidates, references)}", compute)


def _digest(candidates: Sequence[str], references: Sequence[str]) -> str:
    digest = hashlib.blake2b(f"{FORMAT} {len(candidates)}".encode(), digest_size=16)
    for text in (*candidates, *references):
        digest.update(text.encode() + b"\0")
    return digest.hexdigest()


def best_constant(candidates: Sequence[str], references: Sequence[str]) -> str:
    """Returns the candidate with the highest corpus BLEU-4 when it is every study's report.

    Ties go to the first. Raises ValueError unless there is a candidate and a reference.
    """
    if not candidates or not references:
        raise ValueError("a constant report needs candidates and references")
    having, words = Counter[tuple[bleu.Gram, int]](), 0
    for reference in map(bleu.count_ngrams, references):
        words += reference.words
        for grams in reference.grams:
            having.update(grams)
    different = list(dict.fromkeys(candidates))
    totals = [_total(bleu.count_ngrams(text), having, len(references), words) for text in different]
    return different[int(np.argmax(bleu.bleu_4(np.array(totals, dtype=np.int64))))]


def _total(
    report: bleu.Counted, having: Counter[tuple[bleu.Gram, int]], studies: int, words: int
) -> list[int]:
    """Returns the corpus sums if every study's report is `report`; `having` counts references per n-gram."""
    matches = [sum(having[gram] for gram in grams) for grams in report.grams]
    return [*matches, *(studies * size for size in report.sizes), studies * report.words, words]
