"""Whether a training has become slower, or faster, than it was; and what that is likely to come from. Pure.

A training is a sequence of `Window`s of about equal time, ten seconds say, with the steps that lay in each:
no evaluation, no compiling, no time between two processes. `drift` says what has changed since the beginning,
once that is sure; it may be called after every window. A caller that waits for the next change leaves out the
windows from before the last one.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from autotune.core.measurement import PHASES, others_shares
from autotune.judging.measurement.estimates import Figure, student_t

_LEAST = 0.05  # of a throughput: a smaller change does not matter
_LEVEL = 0.95  # of a look, divided among as many as there are blocks
_SHORTEST, _LONGEST, _BLOCKS = 12, 60, 16  # windows of a block; blocks that a training is cut into
_FEWEST_BEFORE, _LASTING = 6, 3  # blocks
_FIRST = 4  # part of a long training that it is held against
_LEAST_NOISE = 0.01
_MOST_OF_IT = 0.5  # of the seconds that a sample takes more: what explains them
_THROTTLED_SHARE, _SLOWER_CLOCK, _SAME_LOAD_PERCENT = 0.1, 0.97, 5.0
_DATA, *_COMPUTE = PHASES


class Cause(StrEnum):
    """The likely cause of a slower training: the first one that the figures show."""

    THROTTLING = "throttling"  # the GPU is slowed down for its heat or its power
    NEIGHBOUR = "a neighbour"  # other processes use the CPUs or the GPU
    LOADER = "the loader"  # waiting for data: a slow disk, slow preprocessing
    LONGER_DATA = "longer data"  # computing a sample takes longer, and nothing else has changed
    UNKNOWN = "not known"


@dataclass(frozen=True)
class Window:
    """Some seconds of steps: `trained` samples in them, up to so many `samples` in all.

    `phases_s` are the seconds that each of the `PHASES` of the steps took, and `seen` is what `Telemetry`
    saw; both without what is not known.
    """

    samples: int
    trained: int
    seconds: float
    phases_s: Mapping[str, float] = field(default_factory=dict)
    seen: Mapping[str, float] = field(default_factory=dict)

    @property
    def per_s(self) -> float:
        return self.trained / self.seconds


@dataclass(frozen=True)
class Drift:
    """A change of the throughput: from `before_per_s` to `after_per_s` samples per second.

    It holds from so many `samples` on, at the latest. `ratio` is that of the two, with its 95% interval. Of a
    training that has become faster, `cause` is what it was slower for before.
    """

    samples: int
    before_per_s: float
    after_per_s: float
    ratio: Figure
    cause: Cause


def drift(windows: Sequence[Window]) -> Drift | None:
    """Returns the change between the first windows and the last ones; None if no change is certain.

    Blocks of 12 to 60 windows count as their medians, so that a pause says nothing. Neighbouring windows are
    correlated, blocks much less: each of the last three is compared with Student's prediction interval for
    one more block like the first ones, six or a quarter of all (Hahn & Meeker, Statistical Intervals, section
    4.7). All three have to be beyond it to the same side, and by 5% of the throughput at least. It looks once
    a block is complete, from 108 windows on, and the level is stricter the more blocks there are. That is no
    bound on all looks together: how often noise alone was said to be a change has been measured instead. Of
    8000 drawn trainings of an hour it was 11, 6 of the 1000 whose noise is worst; of 200 of a day, none.
    """
    size = min(_LONGEST, max(_SHORTEST, len(windows) // _BLOCKS))
    if len(windows) < (_FEWEST_BEFORE + _LASTING) * size or len(windows) % size:
        return None
    before = windows[: max(_FEWEST_BEFORE * size, len(windows) // _FIRST)]
    after = windows[-_LASTING * size :]
    usual, now = _medians(before, size), _medians(after, size)
    if not _has_changed(usual, now, looks=len(windows) // size):
        return None
    was, is_now = statistics.fmean(usual), statistics.median(now)  # the change may lie within the first
    half = _half_width(usual, _LEVEL)
    slow, fast = (after, before) if is_now < was else (before, after)
    cause = _cause(slow, fast)
    ratio = Figure(is_now, max(0.0, is_now - half), is_now + half).scaled(1 / was)
    return Drift(after[0].samples, was, is_now, ratio, cause)


def _medians(windows: Sequence[Window], size: int) -> list[float]:
    """Samples per second of each whole block of so many windows."""
    starts = range(0, len(windows) - size + 1, size)
    return [statistics.median(window.per_s for window in windows[i : i + size]) for i in starts]


def _has_changed(usual: Sequence[float], now: Sequence[float], looks: int) -> bool:
    was = statistics.fmean(usual)
    least = max(_LEAST * was, _half_width(usual, 1 - (1 - _LEVEL) / looks))
    return min(now) > was + least or max(now) < was - least


def _half_width(usual: Sequence[float], level: float) -> float:
    """Half the interval that one more like these lies within."""
    noise = max(statistics.stdev(usual), _LEAST_NOISE * statistics.fmean(usual))
    return student_t(level, len(usual) - 1) * noise * math.sqrt(1 + 1 / len(usual))


def _cause(slow: Sequence[Window], fast: Sequence[Window]) -> Cause:
    """Returns the first cause that the slow windows show and the fast ones do not."""
    if _is_throttled(slow, fast):
        return Cause.THROTTLING
    if _has_neighbour(slow, fast):
        return Cause.NEIGHBOUR
    if _is_most([_DATA], slow, fast):
        return Cause.LOADER
    if _is_most(_COMPUTE, slow, fast) and any(window.seen for window in slow):
        return Cause.LONGER_DATA
    return Cause.UNKNOWN


def _is_throttled(slow: Sequence[Window], fast: Sequence[Window]) -> bool:
    """By the driver's own word, or by a clock that fell while the GPU had as much to do."""
    if _more("gpu_throttled", slow, fast) > _THROTTLED_SHARE:
        return True
    clocks = [_mean("gpu_sm_clock_mhz", windows) for windows in (slow, fast)]
    is_slower = clocks[0] < _SLOWER_CLOCK * clocks[1]
    return is_slower and _more("gpu_utilisation_percent", slow, fast) > -_SAME_LOAD_PERCENT


def _has_neighbour(slow: Sequence[Window], fast: Sequence[Window]) -> bool:
    names = ("others_cpu_percent", "others_gpu_percent")
    more = {name: _more(name, slow, fast) for name in names}
    return bool(others_shares({**more, "allowed_cpus": _mean("allowed_cpus", slow)}))


def _is_most(phases: Sequence[str], slow: Sequence[Window], fast: Sequence[Window]) -> bool:
    """Returns True if these phases took most of the time that a sample takes more."""
    taken_s = _per_sample_s(phases, slow) - _per_sample_s(phases, fast)
    more_s = statistics.median(1 / w.per_s for w in slow) - statistics.median(1 / w.per_s for w in fast)
    return taken_s > _MOST_OF_IT * more_s


def _per_sample_s(phases: Sequence[str], windows: Sequence[Window]) -> float:
    return statistics.median(sum(w.phases_s.get(phase, 0.0) for phase in phases) / w.trained for w in windows)


def _more(name: str, slow: Sequence[Window], fast: Sequence[Window]) -> float:
    return _mean(name, slow) - _mean(name, fast)


def _mean(name: str, windows: Sequence[Window]) -> float:
    """Returns the mean of what was seen; 0 if it never was."""
    found = [window.seen[name] for window in windows if name in window.seen]
    return statistics.fmean(found) if found else 0.0
