"""Decides from the figures of all trials whether a running one may still win. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from autotune.core.measurement import Evaluation, Measurement, Metric, Throughput
from autotune.core.settings import Config, Key, settings_key
from autotune.core.trial import Outcome, Status, StoppedFor, Trial
from autotune.judging.decisions import confirm, planning, replanning
from autotune.judging.decisions.history import History
from autotune.judging.measurement import curves

_MORE_OTHERS = 0.05  # share of the machine that other programs may use beyond that during the rival's run
_FEWEST_STEPS = 8  # with fewer, an interval is a guess, and it is checked every second


@dataclass(frozen=True)
class Rival:
    """An eligible trial that a running one has to beat."""

    number: int
    samples_per_s: float  # lower end
    shared: bool
    samples: int  # of its training
    curve: tuple[Evaluation, ...] = ()  # a slower trial must reach it; empty if only speed counts
    origin: tuple[str, str] | None = None  # of its figures; None is comparable with any
    seconds: float | None = None  # to the target, which count instead of the speed
    others: float = 0.0  # share of the machine that other programs used during its run
    settings: Key | None = None  # without the length: they need not beat themselves at another one


@dataclass(frozen=True)
class Threshold:
    """The bar that a running trial must be able to reach; plain values, sent to other processes."""

    rivals: tuple[Rival, ...] = ()
    samples: int = 0  # of the baseline's training
    curve: tuple[Evaluation, ...] = ()  # the baseline's
    keep: float = 0.0  # share to keep of the baseline's gain since `start`
    start: float | None = None
    noise: float | None = None  # SD between runs with other seeds, as a share of the gain; None if unknown
    drift: float = 0.0  # relative SD of the throughput of equal settings from run to run
    metric: Metric = field(default_factory=lambda: Metric("quality"))
    shared: tuple[int, ...] = ()  # numbers of the running trials that others run alongside
    times_late: float = 1.0  # a trial is too late after so many times a rival's seconds to the target
    rate: float = 0.0  # quality gained per factor e of a training's length, if lengths are planned
    is_longest: bool = False  # no training is longer, whatever was planned: the baseline's ended by itself

    @property
    def moved(self) -> float:
        """The factor by which the speed of equal settings may rise from run to run."""
        return 1 + curves.SURE * self.drift


def threshold(history: History) -> Threshold:
    """Returns the bar for running trials, given the trials so far."""
    space, goal = history.space, history.space.objective
    bar = partial(Threshold, drift=history.speeds.drift, metric=space.metric)
    if goal.target is not None:
        first: dict[bool, Rival] = {}  # the quickest that ran alone, and that shared the machine
        for trial in history.ranked:  # best first
            if seconds := history.to_target.seconds(trial):
                rival = replace(_rival(trial, history), seconds=seconds)
                first.setdefault(rival.shared, rival)
        return bar(tuple(first.values()), times_late=history.times_late)
    is_longest = history.whole < space.budget.samples_per_trial
    bar = partial(bar, samples=history.whole, is_longest=is_longest, start=history.start, noise=history.noise)
    if goal.select == "pareto":
        return bar(tuple(_rival(t, history, t.measurement.curve) for t in history.front))
    is_free = goal.select == "same-training" or goal.takes_any_quality
    best = _planned(history) if planning.is_wanted(space) else _fastest(history, is_free=is_free)
    return bar(
        (best,) if best else (),
        curve=() if is_free else history.baseline_curve,
        keep=history.least_share,
        rate=history.needs.rate or 0.0,
    )


def _fastest(history: History, *, is_free: bool) -> Rival | None:
    """Returns the fastest trial that keeps the quality beyond noise; the fastest of all if `is_free`.

    A trial that did not hold when it was measured again does not count.
    """
    refuted = {trial.number for trial, _ in confirm.refuted(history)}
    least = history.least_quality or 0.0
    least += curves.gain(least, history.start) * (history.noise or 0.0)
    ranked = (trial for trial in history.ranked if trial.number not in refuted)
    keeping = (t for t in ranked if is_free or t.number == 0 or (t.quality or 0.0) >= least)
    return next((_rival(trial, history) for trial in keeping), None)


def _planned(history: History) -> Rival | None:
    """Returns the best trial, as long as its settings need: to beat a shorter one is too much to ask."""
    if (leader := replanning.best(history)) is None:
        return None
    samples = history.space.samples(replanning.as_needed(leader, history))
    settings = leader.key_without(planning.WITHOUT_LENGTH)
    return replace(_rival(leader, history), samples=samples, settings=settings)


def _rival(trial: Trial, history: History, curve: tuple[Evaluation, ...] = ()) -> Rival:
    surely, measured = history.surely_per_s(trial), trial.measurement
    others = max(measured.others.values(), default=0.0)
    return Rival(
        trial.number, surely, measured.shared, history.length(trial), curve, measured.origin, others=others
    )


def verdict(running: Measurement, threshold: Threshold, samples: int, config: Config) -> Outcome | None:
    """Returns the outcome of a trial of `config` that can no longer win, None while it may.

    `samples` is the planned length of its training.
    """
    samples = min(samples, threshold.samples) if threshold.is_longest else samples
    # At equal shares of a training, as a shorter schedule lowers the learning rate earlier.
    times = threshold.samples / samples if threshold.samples else 1.0
    at_equal_shares = replace(running, curve=curves.scaled(running.curve, times))
    return (
        _too_slow(at_equal_shares, threshold, samples, settings_key(config, planning.WITHOUT_LENGTH))
        or _too_poor(running, at_equal_shares.curve, threshold, samples)
        or _too_late(running, threshold)
    )


def _stopped(stopped_for: StoppedFor, reason: str) -> Outcome:
    return Outcome(Status.STOPPED, reason=reason, stopped_for=stopped_for)


def _like(running: Measurement, threshold: Threshold) -> list[Rival]:
    """Returns the rivals whose speed is comparable with the running trial's; decided only here."""
    others = max(running.others.values(), default=0.0)
    return [
        rival
        for rival in threshold.rivals
        if (rival.shared, rival.origin or running.origin) == (running.shared, running.origin)
        and others <= rival.others + _MORE_OTHERS  # those slow a trial down by an unknown amount
    ]


def _is_out_of_reach(
    curve: Sequence[Evaluation], reference: Sequence[Evaluation], keep: float, threshold: Threshold
) -> bool:
    noise, samples, start = threshold.noise, threshold.samples, threshold.start
    return curves.is_out_of_reach(curve, reference, keep, noise, samples, start=start)


def _too_slow(running: Measurement, threshold: Threshold, samples: int, settings: Key) -> Outcome | None:
    for rival in (r for r in _like(running, threshold) if r.seconds is None and r.settings != settings):
        slower = explain_slower(running.throughput, rival, threshold, samples)
        if slower and not rival.curve:
            return _stopped(StoppedFor.SLOW, slower)
        if slower and _is_out_of_reach(running.curve, rival.curve, 1.0, threshold):
            return _stopped(StoppedFor.DOMINATED, f"{slower}, and its quality is out of reach")
    return None


def explain_slower(
    throughput: Throughput | None, rival: Rival, threshold: Threshold, samples: int
) -> str | None:
    """Returns a line if a training of `samples` certainly takes longer than the rival's, else None."""
    most, unit = _most_per_s(throughput), threshold.metric.unit
    if most is None or most * threshold.moved / samples >= rival.samples_per_s / rival.samples:
        return None
    if samples != rival.samples:
        theirs_s = rival.samples / rival.samples_per_s
        return f"{samples:,} {unit} take {samples / most:.0f} s; trial {rival.number} takes {theirs_s:.0f} s"
    return f"at most {most:.1f} {unit}/s; trial {rival.number} reaches {rival.samples_per_s:.1f}"


def _most_per_s(throughput: Throughput | None) -> float | None:
    """Returns the upper end of a speed; None while the steps are too few."""
    if throughput is None or throughput.half_width_per_s is None or throughput.steps < _FEWEST_STEPS:
        return None
    return throughput.samples_per_s + throughput.half_width_per_s


def _too_poor(
    running: Measurement, at_equal_shares: Sequence[Evaluation], threshold: Threshold, samples: int
) -> Outcome | None:
    # The longest training that may still win takes as long as the rival's, or is as long as the baseline's.
    most, rival = _most_per_s(running.throughput), next(iter(_like(running, threshold)), None)
    longest_samples = float(threshold.samples)
    if most is not None and rival is not None:
        longest_samples = most * threshold.moved * rival.samples / rival.samples_per_s
    more = threshold.rate * math.log(max(1.0, longest_samples / samples))  # quality that it would gain
    longest = tuple(replace(point, quality=point.quality + more) for point in at_equal_shares)
    if not _is_out_of_reach(longest, threshold.curve, threshold.keep, threshold):
        return None
    reference = (curves.quality_at(threshold.curve, at_equal_shares[-1].samples) or 0.0) - more
    quality, baseline_quality = map(threshold.metric.turned, (running.curve[-1].quality, reference))
    after = f"after {running.curve[-1].samples:,} {threshold.metric.unit}"
    had = f"{'would have, as short, about' if more else 'had'} {baseline_quality:.4f} by then"
    return _stopped(StoppedFor.POOR, f"{threshold.metric.name} {quality:.4f} {after}; the baseline {had}")


def _too_late(running: Measurement, threshold: Threshold) -> Outcome | None:
    if not running.throughput:
        return None
    trained_s = running.samples / running.throughput.samples_per_s
    for rival in _like(running, threshold):
        if rival.seconds is not None and trained_s > rival.seconds * threshold.times_late:
            earlier = f"trial {rival.number} reached it in {rival.seconds:.0f} s"
            return _stopped(StoppedFor.LATE, f"target not reached after {trained_s:.0f} s; {earlier}")
    return None
