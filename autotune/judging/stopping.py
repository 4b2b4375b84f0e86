"""May this trial still win? Pure functions of what it has shown, and of what is known of the others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from autotune.core.trial import Evaluation, Measurement, Outcome, Status, StoppedFor, Throughput, Trial
from autotune.judging import curves
from autotune.judging.history import History
from autotune.space.sections import turned

_FEWEST_STEPS = 8  # before that an interval is a guess, and it is asked again every second


@dataclass(frozen=True)
class Rival:
    """A trial that qualifies: its speed's lower bound, and the curve that makes up for being slower.

    An empty curve: only speed counts. `origin` is where its figures come from, None for wherever. `seconds`
    are those that it takes to the target, where there is one: they count then, and not its speed.
    """

    number: int
    samples_per_s: float
    shared: bool
    curve: tuple[Evaluation, ...] = ()
    origin: tuple[str, str] | None = None
    seconds: float | None = None

    def is_like(self, shown: Measurement) -> bool:
        """Whether its figures can be held against `shown`."""
        return self.shared == shown.shared and self.origin in {None, shown.origin}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        origin = tuple(values["origin"]) if values.get("origin") else None
        return cls(**{**values, "curve": _curve(values["curve"]), "origin": origin})


@dataclass(frozen=True)
class Threshold:
    """What a running trial has to be able to reach, in plain values: it is sent to wherever trials run.

    A whole trial has so many `samples`. `curve` is the baseline's quality, of which a share of `keep` must be
    kept; `noise` is the relative standard deviation between runs that differ in their seed alone, None while
    it is not known. `drift` is that of the throughput of the same settings from run to run. `minimize` and
    `unit` say how qualities and samples are shown.
    """

    rivals: tuple[Rival, ...] = ()
    samples: int = 0
    curve: tuple[Evaluation, ...] = ()
    keep: float = 0.0
    noise: float | None = None
    drift: float = 0.0
    minimize: bool = False
    unit: str = "samples"

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        rivals = tuple(map(Rival.from_dict, values["rivals"]))
        return cls(**{**values, "rivals": rivals, "curve": _curve(values["curve"])})


def _curve(points: Sequence[Mapping[str, Any]]) -> tuple[Evaluation, ...]:
    return tuple(Evaluation(**point) for point in points)


def threshold(history: History) -> Threshold:
    """What a trial has to be able to reach, after all that is known."""
    space = history.space
    return replace(_threshold(history), minimize=space.objective.minimize is not None, unit=space.unit)


def _threshold(history: History) -> Threshold:
    goal, drift, noise = history.space.objective, history.speeds.drift, history.noise
    if goal.target is not None:
        return Threshold(_soonest(history), drift=drift)
    samples = history.space.budget.samples_per_trial
    if goal.select == "pareto":
        front = tuple(_rival(t, history, t.measurement.curve) for t in history.front)
        return Threshold(front, samples, drift=drift, noise=noise)
    least = history.least_quality or 0.0
    least += abs(least) * (noise or 0.0)
    is_free = goal.select == "same-training" or goal.takes_any_quality
    sure = (t for t in history.ranked if is_free or t.number == 0 or (t.quality or 0.0) >= least)
    best = next(sure, None)
    return Threshold(
        rivals=(_rival(best, history),) if best else (),
        samples=samples,
        curve=() if is_free else history.baseline_curve,
        keep=history.least_share,
        noise=noise,
        drift=drift,
    )


def _soonest(history: History) -> tuple[Rival, ...]:
    """The first at the target, of those that ran alone and of those that ran alongside others."""
    first: dict[bool, Rival] = {}
    for trial in history.ranked:  # best first
        if seconds := history.to_target.seconds(trial):
            rival = replace(_rival(trial, history), seconds=seconds)
            first.setdefault(rival.shared, rival)
    return tuple(first.values())


def _rival(trial: Trial, history: History, curve: tuple[Evaluation, ...] = ()) -> Rival:
    surely = history.surely_per_s(trial)
    return Rival(trial.number, surely, trial.measurement.shared, curve, trial.measurement.origin)


def verdict(shown: Measurement, threshold: Threshold) -> Outcome | None:
    """The end of a trial that has `shown` this and can no longer win, None while it may."""
    return _too_slow(shown, threshold) or _too_poor(shown, threshold) or _too_late(shown, threshold)


def _stopped(stopped_for: StoppedFor, reason: str) -> Outcome:
    return Outcome(Status.STOPPED, reason=reason, stopped_for=stopped_for)


def _like(shown: Measurement, threshold: Threshold) -> list[Rival]:
    """Those whose figures compare with `shown`: the one place that says what may beat a trial."""
    return [rival for rival in threshold.rivals if rival.is_like(shown)]


def _too_slow(shown: Measurement, threshold: Threshold) -> Outcome | None:
    for rival in _like(shown, threshold):
        slower = why_slower(shown.throughput, rival, threshold) if rival.seconds is None else None
        if slower and not rival.curve:
            return _stopped(StoppedFor.SLOW, slower)
        if slower and curves.is_out_of_reach(
            shown.curve, rival.curve, 1.0, threshold.noise, threshold.samples
        ):
            reason = f"{slower}, and its quality cannot be reached either"
            return _stopped(StoppedFor.DOMINATED, reason)
    return None


def why_slower(throughput: Throughput | None, rival: Rival, threshold: Threshold) -> str | None:
    """By how much a throughput lies below the rival's, None where that is not certain."""
    if throughput is None or throughput.half_width_per_s is None or throughput.steps < _FEWEST_STEPS:
        return None
    most = throughput.samples_per_s + throughput.half_width_per_s
    if most * (1 + curves.SURE * threshold.drift) >= rival.samples_per_s:
        return None
    return f"at most {most:.1f} {threshold.unit}/s; trial {rival.number} has {rival.samples_per_s:.1f}"


def _too_poor(shown: Measurement, threshold: Threshold) -> Outcome | None:
    if not curves.is_out_of_reach(
        shown.curve, threshold.curve, threshold.keep, threshold.noise, threshold.samples
    ):
        return None
    last = shown.curve[-1]
    there = curves.at(threshold.curve, last.samples) or 0.0
    found, beside = (turned(quality, minimize=threshold.minimize) for quality in (last.quality, there))
    after = f"after {last.samples} {threshold.unit}"
    reason = f"quality {found:.4f} {after}, where the baseline has {beside:.4f}"
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
