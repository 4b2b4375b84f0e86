"""May this trial still win? Pure functions of what it has shown, and of what is known of the others."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from autotune.core.measurement import Evaluation, Measurement, Throughput
from autotune.core.metric import Metric
from autotune.core.trial import Outcome, Status, StoppedFor, Trial
from autotune.judging.decisions.history import History
from autotune.judging.measurement import curves

_MORE_OTHERS = 0.05  # of the machine, that other programs may take more than they did beside a rival
_FEWEST_STEPS = 8  # before that an interval is a guess, and it is asked again every second


@dataclass(frozen=True)
class Rival:
    """A trial that qualifies: its speed's lower bound, and the curve that makes up for being slower.

    Its training has so many `samples`. An empty curve: only speed counts. `origin` is that of its
    figures, None for any. `seconds` are those that it takes to the target, if there is one: they count
    then, and not its speed. `others` is the share of the machine that other programs took meanwhile.
    """

    number: int
    samples_per_s: float
    shared: bool
    samples: int
    curve: tuple[Evaluation, ...] = ()
    origin: tuple[str, str] | None = None
    seconds: float | None = None
    others: float = 0.0

    def is_like(self, shown: Measurement) -> bool:
        """Returns True if its figures can be held against `shown`."""
        return self.shared == shown.shared and self.origin in {None, shown.origin}


@dataclass(frozen=True)
class Threshold:
    """The bar that a running trial must be able to reach, in plain values: it is sent to wherever trials run.

    The baseline's training has so many `samples`. `curve` is its quality; a share of `keep` must be kept of
    what it has gained since the quality `start`. `noise` is the standard deviation between runs that differ
    in their seed alone, as a share of that; None while it is not known. `drift` is that of the throughput of
    the same settings from run to run.
    """

    rivals: tuple[Rival, ...] = ()
    samples: int = 0
    curve: tuple[Evaluation, ...] = ()
    keep: float = 0.0
    start: float | None = None
    noise: float | None = None
    drift: float = 0.0
    metric: Metric = field(default_factory=lambda: Metric("quality"))


def threshold(history: History) -> Threshold:
    """Returns the bar for running trials, after all that is known."""
    space, goal = history.space, history.space.objective
    bar = partial(Threshold, drift=history.speeds.drift, metric=space.metric)
    if goal.target is not None:
        return bar(_soonest(history))
    bar = partial(bar, samples=space.budget.samples_per_trial, start=history.start, noise=history.noise)
    if goal.select == "pareto":
        return bar(tuple(_rival(t, history, t.measurement.curve) for t in history.front))
    least = history.least_quality or 0.0
    least += curves.gain(least, history.start) * (history.noise or 0.0)
    is_free = goal.select == "same-training" or goal.takes_any_quality
    sure = (t for t in history.ranked if is_free or t.number == 0 or (t.quality or 0.0) >= least)
    best = next(sure, None)
    return bar(
        (_rival(best, history),) if best else (),
        curve=() if is_free else history.baseline_curve,
        keep=history.least_share,
    )


def _soonest(history: History) -> tuple[Rival, ...]:
    """Returns the first at the target, of those that ran alone and of those that ran alongside others."""
    first: dict[bool, Rival] = {}
    for trial in history.ranked:  # best first
        if seconds := history.to_target.seconds(trial):
            rival = replace(_rival(trial, history), seconds=seconds)
            first.setdefault(rival.shared, rival)
    return tuple(first.values())


def _rival(trial: Trial, history: History, curve: tuple[Evaluation, ...] = ()) -> Rival:
    surely = history.surely_per_s(trial)
    shown = trial.measurement
    others = max(shown.others.values(), default=0.0)
    return Rival(
        trial.number, surely, shown.shared, history.length(trial), curve, shown.origin, others=others
    )


def verdict(shown: Measurement, threshold: Threshold, samples: int) -> Outcome | None:
    """Returns the end of a trial that has `shown` this and can no longer win, None while it may.

    Its training is planned for so many `samples`. Qualities are compared at equal shares of a training: a
    schedule that ends sooner falls sooner.
    """
    times = threshold.samples / samples if threshold.samples else 1.0
    beside = replace(shown, curve=curves.scaled(shown.curve, times))
    return (
        _too_slow(beside, threshold, samples)
        or _too_poor(shown, beside, threshold)
        or _too_late(shown, threshold)
    )


def _stopped(stopped_for: StoppedFor, reason: str) -> Outcome:
    return Outcome(Status.STOPPED, reason=reason, stopped_for=stopped_for)


def _like(shown: Measurement, threshold: Threshold) -> list[Rival]:
    """Returns the rivals whose speed compares with `shown`: the one place that says what may beat a trial.

    A trial beside other programs is slower for that, and nobody knows by how much: it is not held against a
    rival that had the machine more to itself.
    """
    others = max(shown.others.values(), default=0.0)
    return [r for r in threshold.rivals if r.is_like(shown) and others <= r.others + _MORE_OTHERS]


def _is_out_of_reach(
    curve: Sequence[Evaluation], reference: Sequence[Evaluation], keep: float, threshold: Threshold
) -> bool:
    noise, samples, start = threshold.noise, threshold.samples, threshold.start
    return curves.is_out_of_reach(curve, reference, keep, noise, samples, start=start)


def _too_slow(shown: Measurement, threshold: Threshold, samples: int) -> Outcome | None:
    for rival in _like(shown, threshold):
        slower = why_slower(shown.throughput, rival, threshold, samples) if rival.seconds is None else None
        if slower and not rival.curve:
            return _stopped(StoppedFor.SLOW, slower)
        if slower and _is_out_of_reach(shown.curve, rival.curve, 1.0, threshold):
            reason = f"{slower}, and its quality cannot be reached either"
            return _stopped(StoppedFor.DOMINATED, reason)
    return None


def why_slower(throughput: Throughput | None, rival: Rival, threshold: Threshold, samples: int) -> str | None:
    """Returns by how much a training of so many `samples` takes longer than the rival's; None if not sure."""
    if throughput is None or throughput.half_width_per_s is None or throughput.steps < _FEWEST_STEPS:
        return None
    most = throughput.samples_per_s + throughput.half_width_per_s
    if most * (1 + curves.SURE * threshold.drift) / samples >= rival.samples_per_s / rival.samples:
        return None
    unit = threshold.metric.unit
    if samples != rival.samples:
        theirs_s = rival.samples / rival.samples_per_s
        return f"{samples} {unit} take {samples / most:.0f} s; trial {rival.number} {theirs_s:.0f} s"
    return f"at most {most:.1f} {unit}/s; trial {rival.number} has {rival.samples_per_s:.1f}"


def _too_poor(shown: Measurement, beside: Measurement, threshold: Threshold) -> Outcome | None:
    if not _is_out_of_reach(beside.curve, threshold.curve, threshold.keep, threshold):
        return None
    there = curves.at(threshold.curve, beside.curve[-1].samples) or 0.0
    qualities = (shown.curve[-1].quality, there)
    ours, theirs = map(threshold.metric.turned, qualities)
    after = f"after {shown.curve[-1].samples} {threshold.metric.unit}"
    reason = f"quality {ours:.4f} {after}, where the baseline has {theirs:.4f}"
    return _stopped(StoppedFor.POOR, reason)


def _too_late(shown: Measurement, threshold: Threshold) -> Outcome | None:
    if not shown.throughput:
        return None
    trained_s = shown.samples / shown.throughput.samples_per_s
    for rival in _like(shown, threshold):
        if rival.seconds is not None and trained_s > rival.seconds * (1 + curves.SURE * threshold.drift):
            there = f"trial {rival.number} reached the target in {rival.seconds:.0f} s"
            return _stopped(StoppedFor.LATE, f"has trained for {trained_s:.0f} s; {there}")
    return None
