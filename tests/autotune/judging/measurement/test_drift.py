"""Synthetic trainings: certain changes are reported with their cause, and noise is not."""

import math
import random
from collections.abc import Iterator, Mapping

import pytest

from autotune.judging.measurement.drift import Cause, Drift, Window, drift

SECONDS, BATCH = 10.0, 8
PHASES = {"data_s": 0.1, "forward_s": 0.3, "backward_s": 0.5, "optimizer_s": 0.1}  # shares of a window
SEEN = {
    "others_cpu_percent": 3.0,
    "allowed_cpus": 2.0,
    "gpu_sm_clock_mhz": 1800.0,
    "gpu_utilisation_percent": 90.0,
    "gpu_throttled": 0.0,
}


def wandering(rng: random.Random, keeps: float, spread: float) -> Iterator[float]:
    """Yields the factors of a speed with autocorrelated noise, window by window."""
    noise = 0.0
    while True:
        noise = keeps * noise + rng.gauss(0, spread * math.sqrt(1 - keeps**2))
        yield math.exp(noise)


def windows(
    count: int,
    rng: random.Random,
    factor: float = 1.0,
    phases: Mapping[str, float] = PHASES,
    *,
    seen: Mapping[str, float] = SEEN,
    first: int = 0,
) -> list[Window]:
    """Returns windows of a training at `factor` times 50 samples per second, give or take 5%."""
    drawn, samples = [], first
    speeds = wandering(rng, 0.5, 0.05)
    for _ in range(count):
        trained = max(1, round(50 * factor * SECONDS * next(speeds)))
        samples += trained
        phases_s = {name: share * SECONDS for name, share in phases.items()}
        drawn.append(Window(samples, trained, SECONDS, phases_s, seen))
    return drawn


def changed(
    factor: float,
    phases: Mapping[str, float] = PHASES,
    seen: Mapping[str, float] = SEEN,
    seed: int = 0,
) -> Drift | None:
    """Returns the change that is reported after twenty minutes of training and ten at another speed."""
    rng = random.Random(seed)
    before = windows(120, rng)
    return drift([*before, *windows(60, rng, factor, phases, seen=seen, first=before[-1].samples)])


@pytest.mark.parametrize("seed", range(20))
def test_a_neighbour_that_takes_a_core_is_detected(seed: int) -> None:
    waiting = {"data_s": 0.4, "forward_s": 0.2, "backward_s": 0.3, "optimizer_s": 0.1}
    found = changed(0.6, waiting, {**SEEN, "others_cpu_percent": 100.0}, seed)
    assert found
    assert found.cause is Cause.NEIGHBOUR
    assert found.ratio.low < found.after_per_s / found.before_per_s < found.ratio.high < 0.95
    assert found.after_per_s / found.before_per_s == pytest.approx(0.6, abs=0.05)


@pytest.mark.parametrize(
    ("cause", "phases", "seen"),
    [
        (Cause.THROTTLING, {}, {"gpu_throttled": 1.0}),
        (Cause.THROTTLING, {}, {"gpu_sm_clock_mhz": 1300.0}),
        (Cause.NEIGHBOUR, {}, {"others_gpu_percent": 30.0}),
        (Cause.LOADER, {"data_s": 0.4}, {"gpu_sm_clock_mhz": 900.0, "gpu_utilisation_percent": 60.0}),
        (Cause.LONGER_DATA, {}, {}),
        (Cause.UNKNOWN, dict.fromkeys(PHASES, 0.0), {}),
    ],
)
def test_the_cause_follows_from_the_figures(
    cause: Cause, phases: dict[str, float], seen: dict[str, float]
) -> None:
    found = changed(0.7, PHASES | phases, SEEN | seen)
    assert found
    assert found.cause is cause


def test_without_telemetry_the_cause_is_unknown() -> None:
    rng = random.Random(0)
    before = windows(120, rng, seen={})
    found = drift([*before, *windows(60, rng, 0.7, seen={}, first=before[-1].samples)])
    assert found
    assert found.cause is Cause.UNKNOWN


def test_a_faster_training_names_the_cause_that_ended() -> None:
    rng = random.Random(0)
    before = windows(120, rng, 0.6, seen={**SEEN, "others_cpu_percent": 100.0})
    found = drift([*before, *windows(60, rng, first=before[-1].samples)])
    assert found
    assert found.ratio.low > 1.05
    assert found.cause is Cause.NEIGHBOUR


def test_a_change_is_dated_by_the_windows_that_show_it() -> None:
    rng = random.Random(0)
    before = windows(144, rng)
    after = windows(36, rng, 0.6, first=before[-1].samples)
    found = drift([*before, *after])
    assert found
    assert found.samples == after[0].samples
    assert drift([*before, *after[:24]]) is None


@pytest.mark.parametrize("factor", [0.97, 1.03])
def test_a_change_below_5_percent_is_not_reported(factor: float) -> None:
    assert changed(factor) is None


def test_pauses_are_no_drift() -> None:
    rng = random.Random(0)
    steady = windows(180, rng)
    paused = [
        Window(w.samples, w.trained // 10 if i % 4 == 0 else w.trained, w.seconds, w.phases_s, w.seen)
        for i, w in enumerate(steady)
    ]
    assert drift([*steady[:120], *paused[120:]]) is None


def test_at_most_one_of_200_noisy_trainings_raises_an_alarm() -> None:
    alarms = 0
    for seed in range(200):
        speeds = wandering(random.Random(seed), (0.0, 0.5, 0.8, 0.9)[seed % 4], (0.02, 0.1)[seed % 2])
        seen = [Window(i, round(5000 * next(speeds)), 100.0) for i in range(360)]
        alarms += any(drift(seen[:count]) for count in range(361))  # as often as a watch asks
    assert alarms <= 1


def test_a_gradual_change_is_detected() -> None:
    rng = random.Random(0)
    fading = [windows(1, rng, 1 - 0.3 * i / 3600)[0] for i in range(3600)]
    found = drift(fading)
    assert found
    assert found.ratio.high < 1


def test_too_few_windows_detect_nothing() -> None:
    rng = random.Random(0)
    assert drift([]) is None
    assert drift([*windows(72, rng), *windows(35, rng, 0.5)]) is None
