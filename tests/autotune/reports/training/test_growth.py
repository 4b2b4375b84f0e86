"""The growth of a training's memory in its last process, and its uncertainty."""

import random
from dataclasses import replace

import pytest

from autotune.core.measurement import Slope
from autotune.judging.measurement.trends import Full
from autotune.reports.curves import CurvePoint
from autotune.reports.training import read, series, wording
from autotune.reports.training.model import Growth
from autotune.reports.training.series import TrainingAttempt

from . import handmade

MIB = 2**20
ATTEMPTS = [TrainingAttempt(1000.0, 0.0, 500.0), TrainingAttempt(5000.0, 500.0, 2500.0)]


def memory(**growth):
    """Returns curves of memory over samples, whose second process grows by these functions.

    The first process used far more.
    """
    rng = random.Random(0)
    return {
        name: [CurvePoint(8 * n, 10.0 * n, 9000.0 * MIB) for n in range(51)]
        + [CurvePoint(8 * n, 10.0 * n, held(8 * n) + rng.gauss(0, MIB / 4)) for n in range(51, 250)]
        for name, held in growth.items()
    }


def test_growth_is_that_of_the_last_process_and_says_when_memory_is_full():
    curves = memory(
        host_rss_bytes=lambda samples: 500 * MIB + samples * MIB / 8,
        host_memory_free_bytes=lambda samples: 3992 * MIB / 8 - samples * MIB / 8,
    )
    (found,) = series.growth(curves, ATTEMPTS)
    assert found.memory == "the host's memory"
    assert found.slope.per_sample == pytest.approx(MIB / 8, rel=0.05)
    assert found.full.samples == pytest.approx(3992, rel=0.05)


def test_memory_without_significant_growth_is_never_full():
    curves = memory(gpu_memory_used_bytes=lambda _: 500 * MIB, gpu_memory_free_bytes=lambda _: 100 * MIB)
    (found,) = series.growth(curves, ATTEMPTS)
    assert (found.memory, found.full) == ("the GPU's memory", None)
    assert found.slope.low <= 0 <= found.slope.high


def test_a_process_with_few_points_has_no_growth():
    curves = memory(host_rss_bytes=lambda samples: samples * MIB)
    assert not list(series.growth(curves, [*ATTEMPTS, TrainingAttempt(9000.0, 2400.0, 2600.0)]))
    assert not list(series.growth({}, []))


@pytest.mark.parametrize(
    ("slope", "full", "text"),
    [
        (Slope(-1.0, -2.0, 1.0), None, "does not certainly grow"),
        (
            Slope(2000.0, 1800.0, 2200.0),
            Full(4000.4, 3900.0, 4100.0),
            "grows by 2 MiB (2 MiB to 2 MiB) per 1,000 samples; at this rate full after 4,000 samples",
        ),
        (
            Slope(2000.0, 1000.0, 3000.0, is_slowing=True),
            None,
            "grows by 2 MiB (977 KiB to 3 MiB) per 1,000 samples, but ever more slowly",
        ),
    ],
)
def test_growth_is_shown_with_the_peak(tmp_path, slope, full, text):
    found = read.read(handmade.write(tmp_path / "t").root)
    assert found.growth == ()
    growing = replace(found, growth=(Growth("the host's memory", slope, full),))
    assert dict(wording.figures(growing))["use of the host's memory"] == text
