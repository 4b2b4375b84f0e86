"""Relative speeds of the members of a race, from the turns that they took side by side. Pure."""

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache

from autotune.core.measurement import Slice
from autotune.judging.measurement.estimates import Figure

LEVEL = 0.99  # of a quoted factor
_MOST_BLOCKS = 60


def ratio(slices: Sequence[Slice], number: int, other: int, level: float = LEVEL) -> Figure | None:
    """Returns the speed of `number` relative to `other`, from rounds that both were in; None without one.

    The factor is the median of the pairwise means of the rounds' log-ratios (Hodges & Lehmann, 1963). Its
    interval at `level` is that of Wilcoxon's signed ranks (Hollander, Wolfe & Chicken, Nonparametric
    Statistical Methods, 3.3), None after too few rounds. Both are robust to single disturbed rounds. The time
    added for evaluations has an independent error, so squares add up.
    """
    logs = _logs(slices, number, other)
    size = -(-len(logs) // _MOST_BLOCKS) or 1  # means of neighbouring rounds bound the number of pairs
    blocks = tuple(statistics.fmean(logs[i : i + size]) for i in range(0, len(logs) - size + 1, size))
    if not blocks:
        return None
    means = _pairwise_means(blocks)
    middle = statistics.median(means)
    cut = _rank(len(blocks), level)
    errors = (
        max((turn.unsure for turn in slices if turn.number == member), default=0.0)
        for member in (number, other)
    )
    evaluation_error = math.hypot(*errors)
    if cut < 1:
        return Figure(math.exp(middle))
    low, high = (math.hypot(end - middle, evaluation_error) for end in (means[cut - 1], means[-cut]))
    return Figure(math.exp(middle), math.exp(middle - low), math.exp(middle + high))


def count_rounds(slices: Sequence[Slice], number: int, other: int) -> int:
    """Returns the number of rounds that both were in."""
    return len(_logs(slices, number, other))


@lru_cache(maxsize=16)  # the same rounds are tested at several levels
def _pairwise_means(logs: tuple[float, ...]) -> list[float]:
    return sorted((a + b) / 2 for i, a in enumerate(logs) for b in logs[i:])


def _logs(slices: Sequence[Slice], number: int, other: int) -> tuple[float, ...]:
    rounds: dict[int, dict[int, Slice]] = defaultdict(dict)
    for turn in slices:
        rounds[turn.round][turn.number] = turn
    return tuple(
        math.log(turns[number].samples_per_s / turns[other].samples_per_s)
        for turns in rounds.values()
        if number in turns and other in turns
    )


@lru_cache
def _rank(rounds: int, level: float) -> int:
    """Returns the rank of the pairwise mean that ends an interval of `level`; below 1 if none does."""
    below, ways = 0, _ways(rounds)
    for rank, equal in enumerate(ways):
        below += equal
        if 2 * below > (1 - level) * 2**rounds:
            return rank
    return len(ways)


def _ways(rounds: int) -> list[int]:
    """Counts the sign patterns of 2**rounds whose positive ranks add up to 0, 1, 2, ..."""
    ways = [1]
    for rank in range(1, rounds + 1):
        ways = [a + b for a, b in zip(ways + [0] * rank, [0] * rank + ways, strict=True)]
    return ways
