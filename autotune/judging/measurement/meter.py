"""Measures steady-state throughput, with its confidence interval, from the times of records."""

import bisect
import itertools
import math
import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from autotune.core.measurement import Outside, Throughput
from autotune.core.settings import ACCUMULATION, Config, prefetched_batches
from autotune.judging.measurement.estimates import half_interval

_FEWEST_BATCHES, _MOST_BATCHES = 4, 20  # of steps, for an interval
_STEPS_TO_START = 3  # lazy initialisation, allocator growth, autotuned kernels
_STEPS_TO_GO_ON = 1  # after an evaluation: the first step may include a checkpoint
_RECENT_STEPS = 20
_FEWEST_EVALUATIONS = 3  # with as many, the first one is left out: it includes one-time work
# Pauses: how much longer than other steps, how far apart, how many, and how equal their distances must be.
_TIMES_LONGER, _FEWEST_BETWEEN, _FEWEST_PAUSES, _ALIKE, _MOST_UNLIKE = 4.0, 10, 4, 0.2, 0.25
_LOOKED_AT = 10_000  # last steps, in which pauses are sought
_MOST_STEPS = 4000  # even; a figure is computed every second, also in a training of weeks


@dataclass(frozen=True)
class MeasuredStep:
    """One optimizer step, or several in a row that were merged or reported together."""

    seconds: float  # since the previous record
    samples: int
    records: int = 1  # steps merged

    def __add__(self, after: "MeasuredStep") -> "MeasuredStep":
        seconds, samples = self.seconds + after.seconds, self.samples + after.samples
        return MeasuredStep(seconds, samples, self.records + after.records)


def prefetched_steps(settings: Config) -> int:
    """Returns how many steps may use prefetched batches, and so be faster than the loader."""
    return math.ceil(prefetched_batches(settings) / int(settings.get(ACCUMULATION) or 1))


def steps_to_start(settings: Config) -> int:
    """Returns how many first steps of a process are untypical: slow to start, or on prefetched batches."""
    return prefetched_steps(settings) + _STEPS_TO_START


@dataclass
class _Evaluated:
    """An evaluation, and the first step after it, which may include a checkpoint."""

    seconds: float
    after: MeasuredStep | None = None


@dataclass(frozen=True)
class Stamp:
    """The time of a record. A queued step gets no stamp, because it has not ended by then."""

    at_s: float
    samples: int  # in total
    is_step: bool  # False for an evaluation, and if something was compiled before it


def counted_steps(stamps: Sequence[Stamp], begun_s: float, ended_s: float, ready: int) -> list[MeasuredStep]:
    """Returns the complete steps in a time span that directly follow another step."""
    within = [stamp for stamp in stamps if begun_s <= stamp.at_s <= ended_s]
    # A report within a step, without new samples, ends none; where there are such, the first may be one.
    ends = [b for a, b in itertools.pairwise(within) if b.samples > a.samples or not b.is_step]
    within = within if len(ends) == len(within) - 1 else ends
    pairs = [(a, b) for a, b in itertools.pairwise(within) if b.is_step and b.samples > a.samples]
    # If an evaluation follows every step, a step begins at its end.
    direct = [(a, b) for a, b in pairs if a.is_step] or (pairs if len(pairs) > 1 else [])
    steps = [MeasuredStep(b.at_s - a.at_s, b.samples - a.samples) for a, b in direct]
    return steps[min(ready, len(steps) // 2) :]  # without those on prefetched batches, at most half


class _StepLog:
    """Steady-state steps, merged in equal runs once there are many; `last` keeps recent steps unmerged."""

    def __init__(self) -> None:
        self.steps: list[MeasuredStep] = []
        self.last: deque[MeasuredStep] = deque(maxlen=_LOOKED_AT)
        self._seen, self._every = 0, 1

    def add(self, step: MeasuredStep) -> None:
        self.last.append(step)
        if self._seen % self._every:
            self.steps[-1] += step
        else:
            self.steps.append(step)
        self._seen += 1
        if len(self.steps) > _MOST_STEPS:
            pairs = zip(self.steps[::2], self.steps[1::2], strict=False)  # the odd one starts the next pair
            self.steps, self._every = [*(a + b for a, b in pairs), self.steps[-1]], 2 * self._every


class Meter:
    """Computes the figures of a trial from the times of its records.

    Evaluations and steps that compile do not count. After each of these breaks and after the start, the steps
    on prefetched batches and a few more are dropped, because a trial has more breaks than a training. At most
    half of the steps up to the next break are dropped, so that a short trial still has a figure. `training_s`
    is the time of the same training before this process, for example on another machine.
    """

    def __init__(self, prefetched: int, training_s: float = 0.0) -> None:
        self._prefetched = prefetched
        self._steady = _StepLog()
        self._first = _StepLog()  # the first step after each evaluation
        self._opening: list[MeasuredStep] = []  # since the last break, until it is known which count
        self._warm_up = 0  # how many of them to drop, at most half
        self._recent: deque[MeasuredStep] = deque(maxlen=_RECENT_STEPS)
        self._last_s: float | None = None  # end of the previous step
        self._seen_s: float | None = None  # time of the previous record
        self._last_samples = self._queued = 0
        self._evaluations: list[_Evaluated] = []
        self._evaluated: _Evaluated | None = None  # the last one, until a step follows
        self.training_s = training_s
        self.restart()

    def restart(self) -> None:
        """Begins a new process: the time since the last record belongs to no step."""
        self._last_s = self._seen_s = self._evaluated = None
        self._break(self._prefetched + _STEPS_TO_START)

    def _break(self, warm_up: int) -> None:
        """Begins again after a break: the next `warm_up` steps do not count."""
        for step in self._opened():
            self._steady.add(step)
        if self._warm_up <= self._prefetched + _STEPS_TO_GO_ON:  # after an evaluation
            for step in self._opening[:1]:
                self._first.add(step)
        self._opening, self._warm_up = [], warm_up

    def add(
        self,
        at_s: float,
        samples: int,
        *,
        evaluation: bool,
        compiling: bool = False,
        queued: bool = False,
        steps: int = 1,
    ) -> None:
        """Counts one record of `steps` steps: `at_s` is on any monotonic clock, `samples` the total so far.

        `compiling`: something was compiled before the record. `queued`: its steps had not ended by then, and
        the next record that is not queued counts them too.
        """
        is_break = evaluation or compiling
        is_within = self._last_s is not None and samples == self._last_samples and self._evaluated is None
        if is_within and not (is_break or queued):  # a report within a step, whose time is the step's
            return
        if self._seen_s is not None and samples > self._last_samples and not evaluation:
            self.training_s += at_s - self._seen_s
        self._seen_s = at_s
        if queued and not is_break:
            self._queued += steps
            return
        if evaluation or (self._evaluated is not None and samples == self._last_samples):
            self._evaluate(at_s, samples)
        if is_break:
            self._break(self._prefetched + _STEPS_TO_GO_ON)
        elif self._last_s is not None and samples > self._last_samples:
            step = MeasuredStep(at_s - self._last_s, samples - self._last_samples, self._queued + steps)
            self._recent.append(step)
            self._opening.append(step)
            if sum(each.records for each in self._opening) >= 2 * self._warm_up:  # all drops are done
                self._break(0)
            if self._evaluated is not None:
                self._evaluated.after, self._evaluated = step, None
        self._last_s, self._last_samples, self._queued = at_s, samples, 0

    def _evaluate(self, at_s: float, samples: int) -> None:
        """Counts the time since the last step, without that of unreported steps, as an evaluation."""
        steps, unreported = self._recent, samples - self._last_samples
        if self._last_s is None or (unreported and not steps):
            return
        steps_s = unreported * statistics.median(s.seconds / s.samples for s in steps) if unreported else 0.0
        if self._evaluated is None:  # else it goes on: there was no step since
            self._evaluated = _Evaluated(0.0)
            self._evaluations.append(self._evaluated)
        self._evaluated.seconds += max(0.0, at_s - self._last_s - steps_s)

    def recent_step_s(self) -> float | None:
        """Returns the median time of recent steps; None before the first one."""
        steps_s = [step.seconds / step.records for step in self._recent]
        return statistics.median(steps_s) if steps_s else None

    def throughput(self) -> Throughput | None:
        """Returns the steady-state throughput so far; None before the first step after the warm-up.

        If an evaluation follows every step, it is that of the first steps after them.
        """
        return throughput([*self._steady.steps, *self._opened()] or self._first.steps)

    def _opened(self) -> Sequence[MeasuredStep]:
        """Returns the steps since the last break that already count."""
        ends = list(itertools.accumulate(step.records for step in self._opening))
        dropped = min(self._warm_up, math.ceil(ends[-1] / 2)) if ends else 0
        return self._opening[bisect.bisect_left(ends, dropped) + 1 :] if dropped else self._opening

    def outside(self) -> Outside:
        """Returns the time spent outside the steps so far."""
        usual_s = self.recent_step_s() or 0.0
        counted = self._evaluations[len(self._evaluations) >= _FEWEST_EVALUATIONS :]
        taken_s = [evaluation.seconds for evaluation in counted]
        steps = [evaluation.after for evaluation in counted if evaluation.after]
        late_s = [max(0.0, step.seconds - step.records * usual_s) for step in steps]
        # Checkpoints take about the same time each: the median ignores steps delayed by something else.
        checkpoint_s = statistics.median(late_s) if late_s else 0.0
        return Outside(
            len(self._evaluations),
            statistics.fmean(taken_s) + checkpoint_s if taken_s else None,
            half_interval(taken_s) if len(taken_s) > 1 else None,
            regular_pauses([*self._steady.last, *self._opened()]),
        )


def throughput(steps: Sequence[MeasuredStep]) -> Throughput | None:
    """Returns samples per second over `steps`, with a 95% interval by batch means; None without a step.

    Consecutive steps are correlated (a slow loader is slow for a while), so the interval comes from the means
    of at most 20 contiguous batches of steps (Law & Kelton, Simulation Modeling and Analysis, section 9.5.3).
    """
    seconds = sum(step.seconds for step in steps)
    if not steps or seconds <= 0:
        return None
    half_width = None
    if len(steps) >= _FEWEST_BATCHES:
        batches = min(_MOST_BATCHES, max(_FEWEST_BATCHES, len(steps) // 2))
        edges = [round(i * len(steps) / batches) for i in range(batches + 1)]
        rates = [
            sum(s.samples for s in steps[a:b]) / max(sum(s.seconds for s in steps[a:b]), 1e-9)
            for a, b in itertools.pairwise(edges)
        ]
        half_width = half_interval(rates)
    samples = sum(step.samples for step in steps)
    return Throughput(samples / seconds, half_width, sum(step.records for step in steps), seconds)


def with_evaluations(
    steady: Throughput | None, outside: Outside, samples_per_evaluation: float
) -> Throughput | None:
    """Returns samples per second of a training with evaluations; None if either time is unknown."""
    if steady is None or outside.evaluation_s is None:
        return None
    rate = 1 / (1 / steady.samples_per_s + outside.evaluation_s / samples_per_evaluation)
    if steady.half_width_per_s is None or outside.half_width_s is None:
        return replace(steady, samples_per_s=rate, half_width_per_s=None)
    steps_s = steady.half_width_per_s / steady.samples_per_s**2
    # Their errors are independent.
    half = rate**2 * math.hypot(steps_s, outside.half_width_s / samples_per_evaluation)
    return replace(steady, samples_per_s=rate, half_width_per_s=half)


def regular_pauses(steps: Sequence[MeasuredStep]) -> float:
    """Returns the share of time that regular long steps, from checkpoints or logging, take beyond usual ones.

    Irregular long steps, from other programs, and those every few steps, from a loader, do not count.
    """
    if not steps:
        return 0.0
    usual_s = statistics.median(step.seconds / step.records for step in steps)
    ends = list(itertools.accumulate(step.records for step in steps))
    beyond = [(end, s.seconds - s.records * usual_s) for end, s in zip(ends, steps, strict=True)]
    long = [(end, more_s) for end, more_s in beyond if more_s > (_TIMES_LONGER - 1) * usual_s]
    between = [b - a for (a, _), (b, _) in itertools.pairwise(long)]
    if len(long) < _FEWEST_PAUSES or (usual := statistics.median(between)) < _FEWEST_BETWEEN:
        return 0.0
    if sum(abs(apart - usual) > _ALIKE * usual for apart in between) > _MOST_UNLIKE * len(between):
        return 0.0
    return sum(more_s for _, more_s in long) / sum(step.seconds for step in steps)
