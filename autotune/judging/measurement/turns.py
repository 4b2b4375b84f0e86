"""How fast members of a race are relative to each other, by the turns that they took side by side. Pure."""

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache

from autotune.core.measurement import Slice
from autotune.judging.measurement.estimates import Figure

LEVEL = 0.99  # of a factor that is quoted
_MOST_BLOCKS = 60


def ratio(slices: Sequence[Slice], number: int, other: int, level: float = LEVEL) -> Figure | None:
    """Returns how fast `number` is relative to `other`, by the rounds that both were in; None without any.

    The factor is the median of the pairwise means of the rounds' log-ratios (Hodges & Lehmann, 1963), the
    interval that of Wilcoxon's signed ranks (Hollander, Wolfe & Chicken, Nonparametric Statistical Methods,
    3.3) at `level`, None after too few rounds for that: a round that something else has spoilt moves neither
    much. What is added for evaluations is known from elsewhere: the squares of both uncertainties are added.
    """
    logs = _blocks(_logs(slices, number, other))
    if not logs:
        return None
    means = _means(logs)
    middle = statistics.median(means)
    cut = _rank(len(logs), level)
    unsure = math.hypot(*(_unsure(slices, one) for one in (number, other)))
    if cut < 1:
        return Figure(math.exp(middle))
    low, high = (math.hypot(end - middle, unsure) for end in (means[cut - 1], means[-cut]))
    return Figure(math.exp(middle), math.exp(middle - low), math.exp(middle + high))


def rounds(slices: Sequence[Slice], number: int, other: int) -> int:
    """Returns the number of rounds that both were in."""
    return len(_logs(slices, number, other))


def _unsure(slices: Sequence[Slice], number: int) -> float:
    """Returns the part of a member's speed that rests on other measurements, and may be wrong."""
    return max((one.unsure for one in slices if one.number == number), default=0.0)


@lru_cache(maxsize=16)  # the same rounds are looked at on several levels
def _means(logs: tuple[float, ...]) -> list[float]:
    return sorted((a + b) / 2 for i, a in enumerate(logs) for b in logs[i:])


def _logs(slices: Sequence[Slice], number: int, other: int) -> tuple[float, ...]:
    rounds: dict[int, dict[int, Slice]] = defaultdict(dict)
    for one in slices:
        rounds[one.round][one.number] = one
    return tuple(
        math.log(found[number].samples_per_s / found[other].samples_per_s)
        for found in rounds.values()
        if number in found and other in found
    )


def _blocks(logs: Sequence[float]) -> tuple[float, ...]:
    """Returns means of neighbouring rounds if there are more than it takes: pairs of all would be many."""
    size = -(-len(logs) // _MOST_BLOCKS) or 1
    return tuple(statistics.fmean(logs[i : i + size]) for i in range(0, len(logs) - size + 1, size))


@lru_cache
def _rank(rounds: int, level: float) -> int:
    """Returns which of the ordered pairwise means ends an interval of `level`; below 1 if none does."""
    below, ways = 0, _ways(rounds)
    for rank, equal in enumerate(ways):
        below += equal
        if 2 * below > (1 - level) * 2**rounds:
            return rank
    return len(ways)


def _ways(rounds: int) -> list[int]:
    """Returns in how many of the 2**rounds ways to sign them the positive ranks add up to 0, 1, 2, ..."""
    ways = [1]
    for rank in range(1, rounds + 1):
        ways = [a + b for a, b in zip(ways + [0] * rank, [0] * rank + ways, strict=True)]
    return ways
