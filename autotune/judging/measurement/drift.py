"""Detects that a training has become slower or faster, and its likely cause. Pure.

A training is a sequence of `Window`s of about equal time, such as ten seconds, which contain only steps: no
evaluation, compiling or restart. `drift` returns a change since the beginning once it is certain, and may be
called after every window. To find the next change, leave out the windows before the last change.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from autotune.core.measurement import PHASES, others_shares
from autotune.judging.measurement import estimates
from autotune.judging.measurement.estimates import Figure, student_t

_LEAST = 0.05  # of a throughput: a smaller change does not matter
_LEVEL = 0.95  # of a look; stricter the more blocks there are
_SHORTEST, _LONGEST, _BLOCKS = 12, 60, 16  # shortest and longest block in windows; blocks of a training
_FEWEST_BEFORE, _LASTING = 6, 3  # blocks compared: before, and at the end
_FIRST = 4  # the first quarter of a long training is the reference
_LEAST_NOISE = 0.01
_MOST_OF_IT = 0.5  # of the additional time per sample: a larger share is the cause
_THROTTLED_SHARE, _SLOWER_CLOCK, _SAME_LOAD_PERCENT = 0.1, 0.97, 5.0
_DATA, *_COMPUTE = PHASES


class Cause(StrEnum):
    """The likely cause of a slower training: the first one that the figures support."""

    THROTTLING = "throttling"  # heat or power slows the GPU down
    NEIGHBOUR = "other programs"  # other processes use the CPUs or the GPU
    LOADER = "the loader"  # waiting for data: a slow disk, slow preprocessing
    LONGER_DATA = "longer samples"  # computing a sample takes longer, nothing else has changed
    UNKNOWN = "an unknown cause"


@dataclass(frozen=True)
class Window:
    """The steps of some seconds."""

    samples: int  # in total by its end
    trained: int  # samples within it
    seconds: float
    phases_s: Mapping[str, float] = field(default_factory=dict)  # seconds by phase, known ones only
    seen: Mapping[str, float] = field(default_factory=dict)  # telemetry

    @property
    def per_s(self) -> float:
        return self.trained / self.seconds


@dataclass(frozen=True)
class Drift:
    samples: int  # in total, by which it had happened
    before_per_s: float  # samples per second
    after_per_s: float
    ratio: Figure  # after over before, with its 95% interval
    cause: Cause  # of the slower part, even if it was the first


def drift(windows: Sequence[Window]) -> Drift | None:
    """Returns the change from the first windows to the last ones; None if none is certain.

    Blocks of 12 to 60 windows count by their medians, so that a pause has no effect, and because blocks are
    much less correlated than windows. Each of the last three blocks is compared with Student's prediction
    interval for one more block like the first six, or the first quarter if that is more (Hahn & Meeker,
    Statistical Intervals, section 4.7). All three have to be outside on the same side, and by at least 5% of
    the throughput. It looks after each complete block, from 108 windows on, at a level that is stricter the
    more blocks there are. This bounds no error over all looks; in simulations without a change, 11 of 8000
    trainings of an hour raised an alarm (6 of the 1000 with the worst noise), and none of 200 of a day.
    """
    size = min(_LONGEST, max(_SHORTEST, len(windows) // _BLOCKS))
    if len(windows) < (_FEWEST_BEFORE + _LASTING) * size or len(windows) % size:
        return None
    before = windows[: max(_FEWEST_BEFORE * size, len(windows) // _FIRST)]
    after = windows[-_LASTING * size :]
    usual, now = _medians(before, size), _medians(after, size)
    was, level = statistics.fmean(usual), 1 - (1 - _LEVEL) * size / len(windows)  # stricter with every look
    least = max(_LEAST * was, _half_width(usual, level))
    if was - least <= max(now) and min(now) <= was + least:
        return None
    is_now = statistics.median(now)  # the change may lie within the first of these blocks
    half = _half_width(usual, _LEVEL)
    cause = _cause(after, before) if is_now < was else _cause(before, after)
    ratio = estimates.around(is_now, half, 0.0).scaled(1 / was)
    return Drift(after[0].samples, was, is_now, ratio, cause)


def _medians(windows: Sequence[Window], size: int) -> list[float]:
    """Returns the median samples per second of each complete block of `size` windows."""
    starts = range(0, len(windows) - size + 1, size)
    return [statistics.median(window.per_s for window in windows[i : i + size]) for i in starts]


def _half_width(usual: Sequence[float], level: float) -> float:
    """Returns the half-width of the prediction interval for one more value."""
    noise = max(statistics.stdev(usual), _LEAST_NOISE * statistics.fmean(usual))
    return student_t(level, len(usual) - 1) * noise * math.sqrt(1 + 1 / len(usual))


def _cause(slow: Sequence[Window], fast: Sequence[Window]) -> Cause:
    """Returns the first cause that shows in the slow windows and not in the fast ones."""
    clock, fast_clock = (_mean("gpu_sm_clock_mhz", windows) for windows in (slow, fast))
    is_as_busy = _more("gpu_utilisation_percent", slow, fast) > -_SAME_LOAD_PERCENT
    is_clocked_down = is_as_busy and clock < _SLOWER_CLOCK * fast_clock
    if is_clocked_down or _more("gpu_throttled", slow, fast) > _THROTTLED_SHARE:
        return Cause.THROTTLING
    more = {name: _more(name, slow, fast) for name in ("others_cpu_percent", "others_gpu_percent")}
    if others_shares({**more, "allowed_cpus": _mean("allowed_cpus", slow)}):
        return Cause.NEIGHBOUR
    if _is_most([_DATA], slow, fast):
        return Cause.LOADER
    if _is_most(_COMPUTE, slow, fast) and any(window.seen for window in slow):
        return Cause.LONGER_DATA
    return Cause.UNKNOWN


def _is_most(phases: Sequence[str], slow: Sequence[Window], fast: Sequence[Window]) -> bool:
    """Returns True if these phases explain most of the additional time per sample."""
    taken_s = _per_sample_s(phases, slow) - _per_sample_s(phases, fast)
    more_s = statistics.median(1 / w.per_s for w in slow) - statistics.median(1 / w.per_s for w in fast)
    return taken_s > _MOST_OF_IT * more_s


def _per_sample_s(phases: Sequence[str], windows: Sequence[Window]) -> float:
    return statistics.median(sum(w.phases_s.get(phase, 0.0) for phase in phases) / w.trained for w in windows)


def _more(name: str, slow: Sequence[Window], fast: Sequence[Window]) -> float:
    return _mean(name, slow) - _mean(name, fast)


def _mean(name: str, windows: Sequence[Window]) -> float:
    """Returns the mean of a telemetry figure; 0 if it was never seen."""
    values = [window.seen[name] for window in windows if name in window.seen]
    return statistics.fmean(values) if values else 0.0
