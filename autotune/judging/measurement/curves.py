"""Compares the quality of runs after the same number of samples. Pure functions."""

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import replace

from autotune.core.measurement import Evaluation, Measurement

SURE = 2.0  # standard deviations
_EVALUATIONS_IN_A_ROW = 2
_LEAST_NOISE = 0.02  # a few runs may agree by chance
_ASSUMED_NOISE = 0.2  # while nothing has run twice: only what is hopeless is out of reach then
_CLEARLY = 1.15  # times chance

Curve = Sequence[Evaluation]


def is_out_of_reach(
    curve: Curve,
    reference: Curve,
    keep: float,
    noise: float | None,
    samples: int,
    *,
    start: float | None = None,
) -> bool:
    """Returns True if `curve` will clearly miss a share of `keep` of `reference` after `samples`.

    Its last two evaluations are both more than two standard deviations (`noise`) below that share at the same
    samples, and so is the end, extrapolated from these two: large batches start slowly but catch up. Shares
    are of the gain since the quality `start`. An unknown noise is assumed to be large.
    """
    shares: list[tuple[int, float]] = []
    for point in curve[-_EVALUATIONS_IN_A_ROW:]:
        expected = quality_at(reference, point.samples)
        if expected is not None and gain(expected, start):
            shares.append((point.samples, share(point.quality, expected, start)))
    if len(shares) < _EVALUATIONS_IN_A_ROW:
        return False
    noise = _ASSUMED_NOISE if noise is None else noise
    (before, first), (last, second) = shares[0], shares[-1]
    catching_up = max(0.0, (second - first) / (last - before)) if last > before else 0.0
    in_the_end = second + catching_up * max(0, samples - last)
    return max(first, second, in_the_end) < keep - SURE * noise


def gain(reference: float, start: float | None = None) -> float:
    """Returns the gain in quality of a training from `start` to `reference`.

    If the start is unknown, or no worse than the reference, it is the magnitude of the reference: as if a
    score began at 0, and a loss at twice its end.
    """
    return abs(reference) if start is None or start >= reference else reference - start


def share(quality: float, reference: float, start: float | None = None) -> float:
    """Returns `quality` as a share of the reference's gain, which must not be 0."""
    return 1 + (quality - reference) / gain(reference, start)


def least(keep: float, reference: float, start: float | None = None) -> float:
    """Returns the quality that is a share `keep` of the reference's gain."""
    return reference - (1 - keep) * gain(reference, start)


def scaled(curve: Curve, times: float) -> tuple[Evaluation, ...]:
    """Returns `curve` with its samples multiplied, to compare equal shares of a schedule."""
    if times == 1:
        return tuple(curve)
    return tuple(replace(point, samples=round(point.samples * times)) for point in curve)


def quality_at(curve: Curve, samples: int) -> float | None:
    """Returns the quality after `samples`, interpolated linearly; None outside of the curve's points."""
    for before, after in itertools.pairwise(curve):
        if before.samples <= samples <= after.samples:
            width = after.samples - before.samples
            share = (samples - before.samples) / width if width else 1.0
            return before.quality + share * (after.quality - before.quality)
    return next((p.quality for p in curve if p.samples == samples), None)


def _aligned(curves: Sequence[Curve]) -> list[tuple[Evaluation, ...]]:
    """Groups the points of equal runs at equal samples or, if there are none, at equal positions."""
    others = [{p.samples: p for p in curve} for curve in curves]
    common = [p.samples for p in curves[0] if all(p.samples in o for o in others)] if curves else []
    # There are none if batches differ in tokens.
    return [tuple(o[samples] for o in others) for samples in common] or list(zip(*curves, strict=False))


def mean_curve(curves: Sequence[Curve]) -> tuple[Evaluation, ...]:
    """Returns the mean curve of equal runs, over the points that all of them have."""
    return tuple(
        Evaluation(
            round(statistics.fmean([p.samples for p in points])),
            statistics.fmean([p.seconds for p in points]),
            statistics.fmean([p.quality for p in points]),
        )
        for points in _aligned(curves)
    )


def relative_noise(curves: Sequence[Curve], start: float | None = None) -> float | None:
    """Returns the SD between equal runs with other seeds, as a share of the gain; None for fewer than two."""
    squares, degrees = list[float](), 0
    for points in _aligned(curves):
        if len(points) > 1 and any(p.quality for p in points):
            degrees += len(points) - 1
            mean = statistics.fmean([p.quality for p in points])
            if unit := gain(mean, start):
                squares.append(math.fsum(((p.quality - mean) / unit) ** 2 for p in points))
    return max(_LEAST_NOISE, math.sqrt(math.fsum(squares) / degrees)) if degrees else None


def end_quality(measurement: Measurement) -> float | None:
    """Returns the final quality, if there is one."""
    return final([p.quality for p in measurement.curve]) if measurement.curve else measurement.quality


def final(scores: Sequence[float]) -> float:
    """Returns the mean of the last quarter of the scores of a training, at least one."""
    return statistics.fmean(scores[-max(1, len(scores) // 4) :])


def samples_to_reach(curve: Curve, target: float) -> float | None:
    """Returns the samples after which `curve` reached `target`, None if it never did."""
    before = curve[0].quality if curve else 0.0
    for first, second in itertools.pairwise(curve):
        mean = (first.quality + second.quality) / 2  # a single one may be luck
        if mean >= target and not (first.collapsed or second.collapsed):
            share = (target - before) / (mean - before) if mean > before else 1.0
            return first.samples + max(0.0, share) * (second.samples - first.samples)
        before = mean
    return None


def has_learnt(curve: Curve, fewest: int) -> bool:
    """Returns True if the last two of at least `fewest` evaluations are clearly above chance."""
    return len(curve) >= max(fewest, _EVALUATIONS_IN_A_ROW) and all(
        not p.collapsed
        and (p.chance is None or (share(p.quality, p.chance) >= _CLEARLY if p.chance else p.quality > 0))
        for p in curve[-_EVALUATIONS_IN_A_ROW:]
    )
