"""Whether written reports depend on the study, which a corpus score alone does not show."""

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r2gen import bleu

_SHUFFLES = 19  # the true order is above all of them by chance once in 20 times
_FEWEST_SHARE = 0.1


def dependence(reports: Sequence[str], references: Sequence[str]) -> dict[str, Any]:
    """How far `reports` depend on the study that each was written for, and BLEU-4 study by study.

    `distinct_reports` and `distinct_references` are shares of the studies. `bleu_4_shuffled` is the mean
    BLEU-4 of the same reports dealt to the studies at random. `collapsed` says that the reports hardly depend
    on the study: so dealt they score as much at least once in 19 times (a permutation test at 5%, which a
    handful of studies cannot pass), or fewer than a tenth as many of them are distinct as of the references.
    `bleu_4_items` has a number a study, see `pseudo_values`.
    """
    written, true = [bleu.counted(text) for text in reports], [bleu.counted(text) for text in references]
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
    """The same every time for equally many reports, so that evaluations can be compared."""
    rng = random.Random(0)
    return [rng.sample(reports, len(reports)) for _ in range(_SHUFFLES)]


def pseudo_values(sums: bleu.Sums) -> NDArray[np.float64]:
    """What each of N pairs with `sums` [N, 10] stands for in their BLEU-4, [N]; their mean is about that.

    The jackknife's, N theta - (N - 1) theta without the pair (Efron & Tibshirani, An Introduction to the
    Bootstrap, 1993, ch. 11): BLEU is no mean of pairs, but two models can be compared by these pair by pair.
    """
    total, count = sums.sum(0), len(sums)
    values: NDArray[np.float64] = count * bleu.bleu_4(total) - (count - 1) * bleu.bleu_4(total - sums)
    return values
