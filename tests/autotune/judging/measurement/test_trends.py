"""Slopes of synthetic series: leaks are predicted, and harmless growth is not."""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

import pytest

from autotune.core.measurement import Measurement, Slope
from autotune.judging.measurement import trends
from autotune.judging.measurement.trends import Point, Series, full_at, is_growing, slope, will_fill

MIB, GIB = 2**20, 2**30
BATCH, STEPS = 16, 300
TOTAL = 20 * STEPS * BATCH  # samples of the whole training; a series is its first twentieth
LIMIT = 32 * GIB

Draw = Callable[[random.Random], Iterator[float]]


def series(values: Sequence[float]) -> list[Point]:
    """Returns the bytes held after each step, which begin at 1 GiB."""
    return [Point(BATCH * i, GIB + value) for i, value in enumerate(values, start=1)]


def noise(rng: random.Random) -> float:
    return rng.gauss(0, 2 * MIB)


def saturating(rng: random.Random) -> Iterator[float]:
    most, scale = rng.uniform(0.1, 4) * GIB, rng.uniform(0.02, 0.4) * STEPS
    return (most * (1 - math.exp(-i / scale)) + noise(rng) for i in range(STEPS))


def slower_and_slower(rng: random.Random) -> Iterator[float]:
    rate = rng.uniform(20, 500) * MIB
    return (rate * math.log1p(i) + noise(rng) for i in range(STEPS))


def cache(rng: random.Random) -> Iterator[float]:
    most, full = rng.uniform(0.1, 4) * GIB, rng.uniform(0.1, 0.8) * STEPS
    return (most * min(1, i / full) + noise(rng) for i in range(STEPS))


def allocator(rng: random.Random) -> Iterator[float]:
    jumps = dict.fromkeys(rng.sample(range(STEPS), rng.randint(1, 8)), 0.0)
    return accumulate(rng.uniform(2, 300) * MIB if i in jumps else 0.0 for i in range(STEPS))


def collected(rng: random.Random) -> Iterator[float]:
    period, most, begun = rng.uniform(2, STEPS / 2), rng.uniform(20, 2000) * MIB, rng.randrange(STEPS)
    return (most * ((i + begun) % period) / period + noise(rng) for i in range(STEPS))


def correlated(rng: random.Random) -> Iterator[float]:
    keeps = rng.choice([0.9, 0.99, 1.0])  # share kept from step to step; 1.0 is a random walk
    return accumulate((rng.gauss(0, 20 * MIB) for _ in range(STEPS)), lambda held, new: keeps * held + new)


def highest(rng: random.Random) -> Iterator[float]:
    return accumulate((rng.gauss(0, 200 * MIB) for _ in range(STEPS)), max)


HARMLESS: list[Draw] = [saturating, slower_and_slower, cache, allocator, collected, correlated, highest]


@pytest.mark.parametrize("spread", [0, 1, 10])
def test_a_leak_of_1_mib_per_step_is_predicted_within_20_percent(spread: int) -> None:
    rng = random.Random(spread)
    for _ in range(50):
        seen = series([i * MIB + rng.gauss(0, spread * MIB) for i in range(STEPS)])
        found = slope(seen)
        assert found
        assert found.low <= found.per_sample <= found.high
        assert is_growing(found)
        full = full_at(found.per_sample, seen[-1].value, LIMIT, seen[-1].samples)
        assert full == pytest.approx(BATCH * (LIMIT - GIB) / MIB, rel=0.2)


def test_a_leak_is_predicted_despite_settling_and_garbage_collection() -> None:
    rng = random.Random(1)
    for _ in range(20):
        settling = (value / 20 for value in saturating(rng))
        garbage = (100 * MIB * (i % 11) / 11 for i in range(STEPS))
        steps = zip(settling, garbage, strict=True)
        seen = series([i * MIB + settled + held for i, (settled, held) in enumerate(steps)])
        found = slope(seen)
        assert found
        assert will_fill(found, seen[-1].value, LIMIT / 2, seen[-1].samples, 5 * TOTAL)


def test_at_most_1_percent_of_harmless_series_are_called_leaks() -> None:
    rng, alarms = random.Random(7), 0
    for number in range(500):
        seen = series(list(HARMLESS[number % len(HARMLESS)](rng)))
        found = slope(seen)
        assert found
        alarms += will_fill(found, seen[-1].value, LIMIT / 2, seen[-1].samples, TOTAL)
    assert alarms <= 5


@pytest.mark.parametrize("draw", [saturating, slower_and_slower, cache, collected])
def test_settling_or_collected_memory_is_not_growing(draw: Draw) -> None:
    rng = random.Random(3)
    found = [slope(series(list(draw(rng)))) for _ in range(40)]
    assert sum(one is not None and is_growing(one) for one in found) <= 1


def test_the_interval_covers_the_slope_of_a_drifting_random_walk() -> None:
    rng, covered = random.Random(5), 0
    for _ in range(200):
        steps = (MIB + rng.gauss(0, 5 * MIB) for _ in range(STEPS))
        found = slope(series(list(accumulate(steps))))
        assert found
        covered += found.low <= MIB / BATCH <= found.high
    assert covered >= 180  # 190 are to be expected of 95%


def test_too_few_points_give_no_slope() -> None:
    assert slope([]) is None
    assert slope([Point(i, i) for i in range(29)]) is None
    assert slope([Point(i, i) for i in range(30)]) is not None
    assert slope([Point(8, i) for i in range(100)]) is None


def test_memory_that_does_not_grow_is_never_full() -> None:
    assert full_at(-1.0, 100, 200, 1000) == full_at(0.0, 100, 200, 1000) == math.inf
    assert [full_at(rate, 100, 200, 1000) for rate in (0.5, 1.0, 2.0)] == [1200, 1100, 1050]
    assert full_at(1.0, 300, 200, 1000) == 1000


def test_a_leak_counts_if_its_slowest_growth_fills_the_memory() -> None:
    leak = Slope(1.0, 0.5, 2.0)
    assert will_fill(leak, 100, 200, 1000, total=1201)
    assert not will_fill(leak, 100, 200, 1000, total=1200)
    assert not will_fill(Slope(1.0, 0.5, 2.0, is_slowing=True), 100, 200, 1000, total=10_000)


@pytest.mark.parametrize("count", [1, 400, 401, 1000, 30_000])
def test_a_series_is_thinned_evenly(count: int) -> None:
    kept = Series()
    for i in range(count):
        kept.add(8 * i, float(i))
    assert min(count, 200) <= len(kept.points) <= 400
    assert kept.points[0] == Point(0, 0.0)
    assert len({b.samples - a.samples for a, b in pairwise(kept.points)}) <= 1
    assert kept.points[-1].samples > 0.99 * 8 * (count - 1) - 8


GROWING = Measurement(
    samples=1000,
    peak_memory_bytes=2000,
    memory_limit_bytes=12_000,
    memory_slope=Slope(2.0, 1.0, 4.0),
    telemetry={"host_memory_free_bytes": 20_000.0},
)


def test_a_growing_peak_is_extrapolated_to_the_limit() -> None:
    assert trends.training_full_at(GROWING, 20_000) == 6000
    assert trends.training_full_at(GROWING, 11_000) is None, "it may end before"


def test_without_a_limit_free_host_memory_counts() -> None:
    free = replace(GROWING, memory_limit_bytes=None)
    assert trends.training_full_at(free, 30_000) == 11_000
    assert trends.training_full_at(replace(free, telemetry={}), 30_000) is None


def test_a_training_of_unknown_length_counts_as_a_hundred_trials() -> None:
    assert trends.training_full_at(GROWING, None) == 6000
    assert trends.training_full_at(replace(GROWING, samples=101), None) is None


@pytest.mark.parametrize(
    "slope", [None, Slope(2.0, -1.0, 5.0), Slope(0.0, 0.0, 0.0), Slope(2.0, 1.0, 4.0, is_slowing=True)]
)
def test_uncertain_growth_is_no_leak(slope: Slope | None) -> None:
    assert trends.training_full_at(replace(GROWING, memory_slope=slope), 10**9) is None
