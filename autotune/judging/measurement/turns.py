"""Relative speeds of the members of a race, from the turns that they took side by side. Pure."""

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache

from autotune.core.measurement import Slice
from autotune.judging.measurement import estimates
from autotune.judging.measurement.estimates import Figure

LEVEL = 0.99  # of a quoted factor
# The standard deviation of a log-ratio between launches, and for how many degrees of freedom it counts.
_USUAL_SD, _USUAL_DEGREES = 0.03, 4
_MOST_BLOCKS = 60


def ratio(slices: Sequence[Slice], number: int, other: int, level: float = LEVEL) -> Figure | None:
    """Returns the speed of `number` relative to `other`, from rounds that both were in; None without one.

    Two processes with the same settings differ in speed: memory lies elsewhere, threads sit on other cores.
    So the members are launched several times, and what varies from launch to launch limits what is known. The
    factor is the median of the pairwise means of the launches' log-ratios, each of which is that of its
    rounds (Hodges & Lehmann, 1963). Its interval at `level` is Student's over the launches, with a variance
    that is moderated by the usual one, so that two launches which agree by luck do not look certain (Smyth,
    Linear models and empirical Bayes methods, 2004, section 5), or that of Wilcoxon's signed ranks if it is
    narrower (Hollander, Wolfe & Chicken, Nonparametric Statistical Methods, 3.3). It is at least as wide as
    the ranks' over all rounds, and None after too few of them. The time added for evaluations has an
    independent error, so squares add up.
    """
    launches = _logs(slices, number, other)
    if not launches:
        return None
    centres = [_centre(logs) for logs in launches]
    middle = _centre(centres)
    rounds_error = _rank_error([log for logs in launches for log in logs], level)
    if rounds_error is None:
        return Figure(math.exp(middle))
    unsure = (
        max((turn.unsure for turn in slices if turn.number == member), default=0.0)
        for member in (number, other)
    )
    degrees = len(centres) - 1
    squares = statistics.variance(centres) * degrees if degrees else 0.0
    variance = (_USUAL_DEGREES * _USUAL_SD**2 + squares) / (_USUAL_DEGREES + degrees)
    launch_error = estimates.student_t(level, _USUAL_DEGREES + degrees) * math.sqrt(variance / len(centres))
    by_ranks = _rank_error(centres, level)  # does not suffer from a single disturbed launch
    if by_ranks is not None:
        launch_error = min(launch_error, by_ranks)
    error = math.hypot(max(rounds_error, launch_error), *unsure)
    return Figure(math.exp(middle), math.exp(middle - error), math.exp(min(700.0, middle + error)))


def count_rounds(slices: Sequence[Slice], number: int, other: int) -> int:
    """Returns the number of rounds that both were in."""
    return sum(map(len, _logs(slices, number, other)))


def count_launches(slices: Sequence[Slice], number: int, other: int) -> int:
    """Returns the number of launches that both were in."""
    return len(_logs(slices, number, other))


def _logs(slices: Sequence[Slice], number: int, other: int) -> list[list[float]]:
    """Returns the log-ratios of the rounds that both were in, by launch."""
    rounds: dict[int, dict[int, Slice]] = defaultdict(dict)
    for turn in slices:
        if turn.seconds > 0:  # the lines of a buffered output may all come at the same time
            rounds[turn.round][turn.number] = turn
    launches: dict[int, list[float]] = defaultdict(list)
    for turns in rounds.values():
        if number in turns and other in turns:
            log = math.log(turns[number].samples_per_s / turns[other].samples_per_s)
            launches[turns[number].launch].append(log)
    return list(launches.values())


def _blocks(logs: Sequence[float]) -> tuple[float, ...]:
    """Returns means of neighbouring values, so few that their pairs can be counted."""
    size = -(-len(logs) // _MOST_BLOCKS) or 1
    return tuple(statistics.fmean(logs[i : i + size]) for i in range(0, len(logs) - size + 1, size))


def _centre(logs: Sequence[float]) -> float:
    return statistics.median(_pairwise_means(_blocks(logs)))


def _rank_error(logs: Sequence[float], level: float) -> float | None:
    """Returns half the width of the rank interval; None if there are too few values for one at `level`."""
    blocks = _blocks(logs)
    cut = _rank(len(blocks), level)
    means = _pairwise_means(blocks)
    return (means[-cut] - means[cut - 1]) / 2 if cut >= 1 else None


@lru_cache(maxsize=256)  # the same rounds are tested at several levels
def _pairwise_means(logs: tuple[float, ...]) -> list[float]:
    return sorted((a + b) / 2 for i, a in enumerate(logs) for b in logs[i:])


@lru_cache
def _rank(rounds: int, level: float) -> int:
    """Returns the rank of the pairwise mean that ends an interval of `level`; below 1 if none does."""
    ways = [1]  # of the 2**rounds sign patterns, those whose positive ranks add up to 0, 1, 2, ...
    for rank in range(1, rounds + 1):
        ways = [a + b for a, b in zip(ways + [0] * rank, [0] * rank + ways, strict=True)]
    below = 0
    for rank, equal in enumerate(ways):
        below += equal
        if 2 * below > (1 - level) * 2**rounds:
            return rank
    return len(ways)
