"""What a trial's peak says of the memory of a whole training."""

from dataclasses import replace

import pytest

from autotune.core.measurement import Measurement, Slope
from autotune.judging.measurement import leaks
from autotune.judging.measurement.trends import Full

GROWING = Measurement(
    samples=1000,
    peak_memory_bytes=2000,
    memory_limit_bytes=12_000,
    memory_slope=Slope(2.0, 1.0, 4.0),
    telemetry={"host_memory_free_bytes": 20_000.0},
)


def test_a_peak_that_grows_is_drawn_on_to_the_limit() -> None:
    assert leaks.full_at(GROWING, 20_000) == Full(6000, 3500, 11_000)
    assert leaks.full_at(GROWING, 11_000) is None, "it may end before"


def test_without_a_limit_it_is_what_the_machine_had_left() -> None:
    free = replace(GROWING, memory_limit_bytes=None)
    assert leaks.full_at(free, 30_000) == Full(11_000, 6000, 21_000)
    assert leaks.full_at(replace(free, telemetry={}), 30_000) is None


def test_a_training_of_unknown_length_is_that_of_a_hundred_trials() -> None:
    assert leaks.full_at(GROWING, None) == Full(6000, 3500, 11_000)
    assert leaks.full_at(replace(GROWING, samples=101, memory_slope=Slope(2.0, 1.0, 4.0)), None) is None


@pytest.mark.parametrize(
    "slope", [None, Slope(2.0, -1.0, 5.0), Slope(0.0, 0.0, 0.0), Slope(2.0, 1.0, 4.0, is_slowing=True)]
)
def test_what_is_not_sure_to_grow_on_is_no_leak(slope: Slope | None) -> None:
    assert leaks.full_at(replace(GROWING, memory_slope=slope), 10**9) is None
