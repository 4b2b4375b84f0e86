"""Tests whether generated reports depend on the study, which a corpus score alone does not show."""

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r2gen import bleu

_SHUFFLES = 19  # by chance, the true order beats all of them once in 20 times
_FEWEST_SHARE = 0.1


def dependence(reports: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
    """Measures how far `reports` depend on their study, and BLEU-4 per study.

    `distinct_reports` and `distinct_references` are shares of the studies. `bleu_4_shuffled` is the mean
    BLEU-4 of the same reports assigned to the studies at random. `collapsed` says that the reports hardly
    depend on the study: one of 19 shuffles scores at least as high (a permutation test at 5%, which a handful
    of studies cannot pass), or there are fewer than a tenth as many distinct reports as distinct references.
    `bleu_4_items` has one number per study, see `pseudo_values`.
    """
    written, true = ([bleu.count_ngrams(text) for text in texts] for texts in (reports, references))
    sums = bleu.sums(written, true)
    shuffled = [float(bleu.bleu_4(bleu.sums(dealt, true).sum(0))) for dealt in _shuffles(written)]
    distinct, needed = len(set(reports)), _FEWEST_SHARE * len(set(references))
    return {
        "bleu_4_items": [round(value, 6) for value in pseudo_values(sums).tolist()],
        "distinct_reports": distinct / len(reports),
        "distinct_references": len(set(references)) / len(references),
        "bleu_4_shuffled": sum(shuffled) / _SHUFFLES,
        "collapsed": float(bleu.bleu_4(sums.sum(0))) <= max(shuffled) or distinct < needed,
    }


def _shuffles(reports: Sequence[bleu.Counted]) -> list[list[bleu.Counted]]:
    """Returns shuffled reports, from a fixed seed so that evaluations are comparable."""
    rng = random.Random(0)
    return [rng.sample(reports, len(reports)) for _ in range(_SHUFFLES)]


def pseudo_values(sums: bleu.Sums) -> NDArray[np.float64]:
    """Returns the jackknife pseudo-values of BLEU-4 [N] for pairs with `sums` [N, 10].

    N theta - (N - 1) theta without the pair (Efron & Tibshirani, An Introduction to the Bootstrap, 1993, ch.
    11). Their mean is about the corpus BLEU-4, which is not a mean of pairs, and they allow a paired
    comparison of two models.
    """
    total, count = sums.sum(0), len(sums)
    values: NDArray[np.float64] = count * bleu.bleu_4(total) - (count - 1) * bleu.bleu_4(total - sums)
    return values
