"""Timestamps in, steady-state throughput with its confidence interval out."""

import bisect
import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from autotune.core.settings import ACCUMULATION, Config, prefetched_batches
from autotune.core.trial import Throughput

_MOST_BATCHES = 20
_FEWEST_BATCHES = 4
_STEPS_TO_START = 3  # lazy initialisation, allocator growth, autotuned kernels
_STEPS_TO_GO_ON = 1  # after an evaluation: its first step comes with a checkpoint
_RECENT_STEPS = 20
_BISECTIONS = 60  # to the last bit


@dataclass(frozen=True)
class Step:
    """One optimizer step: how long it took since the record before it, and how many samples it trained.

    Or so many `records` in a row, where it is not known when each of them had ended.
    """

    seconds: float
    samples: int
    records: int = 1


def prefetched_steps(settings: Config) -> int:
    """Steps whose batches the loader may have had ready: they come in a burst, faster than they are made."""
    return math.ceil(prefetched_batches(settings) / int(settings.get(ACCUMULATION) or 1))


def steps_to_start(settings: Config) -> int:
    """Steps of a new process that are not yet as fast as those that follow, or faster."""
    return prefetched_steps(settings) + _STEPS_TO_START


@dataclass(frozen=True)
class Stamp:
    """A record as a clock sees it: when it came, after how many samples in all, and whether of a step.

    One before which something was compiled is of none; what had not ended when it came has no stamp.
    """

    at_s: float
    samples: int
    is_step: bool


def counted_steps(stamps: Sequence[Stamp], begun_s: float, ended_s: float, ready: int) -> list[Step]:
    """The steps that lay as a whole within that time, but for the first ones, whose batches were `ready`.

    Of these never more than half of all are left out. What began with something else is no step.
    """
    within = [stamp for stamp in stamps if begun_s <= stamp.at_s <= ended_s]
    steps = [
        Step(b.at_s - a.at_s, b.samples - a.samples)
        for a, b in itertools.pairwise(within)
        if a.is_step and b.is_step and b.samples > a.samples
    ]
    return steps[min(ready, len(steps) // 2) :]


class Meter:
    """Collects the times of a trial's records; an evaluation's own time never counts as training.

    A step in which something was compiled is none of the steady state either. After that, as after the start
    and after every evaluation, a burst of prefetched batches is dropped, and some steps more, because a trial
    starts and evaluates more often than training does; but never more than half of the steps up to the next
    such break: a short trial then still has a figure, with an interval that says how little it rests on.
    """

    def __init__(self, prefetched: int) -> None:
        self._prefetched = prefetched
        self._segments: list[tuple[int, list[Step]]] = []  # steps to drop, steps
        self._last_s: float | None = None  # when the step before had ended
        self._seen_s: float | None = None  # when the record before came
        self._last_samples = self._queued = 0
        self.training_s = 0.0
        self.restart()

    def restart(self) -> None:
        """A new process begins, or goes on with, the trial: the time since the last record is no step's."""
        self._last_s = self._seen_s = None
        self._segments.append((self._prefetched + _STEPS_TO_START, []))

    def add(
        self, at_s: float, samples: int, *, evaluation: bool, compiling: bool = False, queued: bool = False
    ) -> None:
        """Counts one record: `at_s` on any monotonic clock, `samples` in total so far.

        Something was `compiling` before it. What is `queued` had not ended when it came: it counts with the
        next step that had.
        """
        is_break = evaluation or compiling
        if self._seen_s is not None and samples > self._last_samples and not evaluation:
            self.training_s += at_s - self._seen_s
        self._seen_s = at_s
        if queued and not is_break:
            self._queued += 1
            return
        if is_break:
            self._segments.append((self._prefetched + _STEPS_TO_GO_ON, []))
        elif self._last_s is not None and samples > self._last_samples:
            step = Step(at_s - self._last_s, samples - self._last_samples, self._queued + 1)
            self._segments[-1][1].append(step)
        self._last_s, self._last_samples, self._queued = at_s, samples, 0

    def recent_step_s(self) -> float | None:
        """How long a step takes at present, the median of the last ones; None before there is one."""
        steps = [step for _, segment in self._segments for step in segment[-_RECENT_STEPS:]]
        return statistics.median(s.seconds / s.records for s in steps[-_RECENT_STEPS:]) if steps else None

    def throughput(self) -> Throughput | None:
        """The steady-state figure so far; None before the first step after the warm-up."""
        steady: list[Step] = []
        for warm_up, steps in self._segments:
            steady += _steady(steps, warm_up)
        return throughput(steady)


def _steady(steps: Sequence[Step], warm_up: int) -> Sequence[Step]:
    """`steps` without the first ones, of `warm_up` records, but never more than half of all."""
    ends = list(itertools.accumulate(step.records for step in steps))
    dropped = min(warm_up, math.ceil(ends[-1] / 2)) if ends else 0
    return steps[bisect.bisect_left(ends, dropped) + 1 :] if dropped else steps


def throughput(steps: Sequence[Step]) -> Throughput | None:
    """Samples per second over `steps` with a 95% interval by batch means; None where there is no step.

    Consecutive steps are correlated (a slow loader is slow for a while), so the interval comes from the means
    of at most 20 contiguous batches of steps and not from single steps (Law & Kelton, Simulation Modeling
    and Analysis, section 9.5.3).
    """
    seconds = sum(step.seconds for step in steps)
    if not steps or seconds <= 0:
        return None
    samples = sum(step.samples for step in steps)
    return Throughput(samples / seconds, _half_width(steps), sum(step.records for step in steps), seconds)


def _half_width(steps: Sequence[Step]) -> float | None:
    if len(steps) < _FEWEST_BATCHES:
        return None
    batches = min(_MOST_BATCHES, max(_FEWEST_BATCHES, len(steps) // 2))
    edges = [round(i * len(steps) / batches) for i in range(batches + 1)]
    rates = [
        sum(s.samples for s in steps[a:b]) / max(sum(s.seconds for s in steps[a:b]), 1e-9)
        for a, b in itertools.pairwise(edges)
    ]
    return half_interval(rates)


def half_interval(values: Sequence[float], level: float = 0.95) -> float:
    """Half the two-sided interval of the mean of independent `values`, two at least: Student's t."""
    return student_t(level, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))


@lru_cache
def student_t(level: float, degrees: int) -> float:
    """How many standard errors to either side make a two-sided interval of `level`, by degrees of freedom.

    The distribution is a finite sum in the angle of t over the root of `degrees` (Abramowitz & Stegun, 26.7.3
    and 26.7.4). scipy has it, too, and takes half of the second in which `status` is to answer.
    """
    low, high = 0.0, math.pi / 2
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, degrees) < level else (low, middle)
    return math.sqrt(degrees) * math.tan(low)


def _within(angle: float, degrees: int) -> float:
    """The share of Student's t that lies within that angle to either side."""
    is_odd = degrees % 2
    term = math.cos(angle) if is_odd else 1.0
    total = term if degrees > 1 else 0.0
    for i in range(2 + is_odd, degrees, 2):
        term *= math.cos(angle) ** 2 * (i - 1) / i
        total += term
    return (angle + math.sin(angle) * total) * 2 / math.pi if is_odd else math.sin(angle) * total
