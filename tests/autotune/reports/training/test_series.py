"""Curves over the seconds of training."""

import pytest

from autotune.reports.curves import CurvePoint
from autotune.reports.training import series
from autotune.reports.training.series import Track, TrainingAttempt


def track(*records):
    found = Track("score")
    for record in records:
        found.count(record)
    return found


def step(samples, at_s, **more):
    return {"samples": samples, "at_s": at_s, "train_loss": 1000.0 - samples, **more}


FIRST = [
    {"attempt": 1000.0, "clock_s": 50.0},
    step(8, 52.0),
    step(16, 53.0),
    step(24, 54.0),
    {"samples": 24, "at_s": 60.0, "score": 0.3},
    step(32, 61.0),
    step(40, 62.0),
]
SECOND = [{"attempt": 9000.0, "clock_s": 5.0}, step(32, 8.0), step(40, 9.0), step(48, 10.0)]


def test_no_time_passes_between_two_attempts():
    found = track(*FIRST, *SECOND)
    assert found.seconds == 12.0 + 5.0
    assert found.attempts == [TrainingAttempt(1000.0, 0.0, 12.0), TrainingAttempt(9000.0, 12.0, 17.0)]


@pytest.mark.parametrize(
    ("at", "seconds"),
    [(900.0, 0.0), (1000.0, 0.0), (1007.5, 7.5), (5000.0, 12.0), (9004.0, 16.0), (9999.0, 17.0)],
)
def test_a_moment_is_converted_to_seconds_of_training(at, seconds):
    assert series.seconds_at(at, track(*FIRST, *SECOND).attempts) == seconds


def test_repeated_samples_replace_earlier_points():
    found = track(*FIRST, *SECOND)
    loss = found.curves({}).loss
    assert [point.samples for point in loss] == [8, 16, 24, 32, 40, 48]
    assert [point.seconds for point in loss] == [2.0, 3.0, 4.0, 15.0, 16.0, 17.0]
    assert found.repeated == 8
    assert found.curves({}).quality == (CurvePoint(24, 10.0, 0.3),)
    again = track(*FIRST, {"attempt": 9000.0, "clock_s": 0.0}, step(16, 2.0), *FIRST[3:5])
    assert [point.samples for point in again.curves({}).quality] == [24]


def test_speed_excludes_evaluations():
    """The speed is 8 samples/s, however long evaluations, checkpoints, compilation and starts take."""
    records, at_s = [{"attempt": 1000.0, "clock_s": 0.0}], 0.0
    for n in range(1, 401):
        is_compiling, is_late = n % 100 == 60, n % 50 == 1
        at_s += 1.0 + 30.0 * is_compiling + 5.0 * is_late
        records.append(step(8 * n, at_s, is_compiling=is_compiling))
        if n % 50 == 0:
            at_s += 20.0
            records.append({"samples": 8 * n, "at_s": at_s, "score": 0.1})
        if n == 230:
            records.append({"attempt": 9000.0, "clock_s": at_s - 10.0})
    speeds = track(*records).curves({}).speed
    assert len(speeds) > 20
    assert {point.value for point in speeds} == {8.0}


def test_a_samples_time_is_split_by_the_phases_of_recorded_steps():
    """A step of 8 samples takes 1 s and loads slowly in the second half; every second step is recorded."""
    kept = (step(8 * n, 50.0 + n, data_s=0.6 if n > 200 else 0.1, forward_s=0.3) for n in range(1, 401, 2))
    found = track(FIRST[0], *kept).curves({}).phases_s
    assert found.keys() == {"data", "forward"}
    times = [(1000 * a.value, 1000 * b.value) for a, b in zip(found["data"], found["forward"], strict=True)]
    assert times[0] == pytest.approx((125 / 4, 125 * 3 / 4))
    assert times[-1] == pytest.approx((125 * 2 / 3, 125 / 3))
    assert track(*FIRST).curves({}).phases_s == {}


def test_nan_is_on_no_curve():
    records = [FIRST[0], step(8, 52.0), step(16, 53.0) | {"train_loss": float("nan")}, step(24, 54.0)]
    assert [point.samples for point in track(*records).curves({}).loss] == [8, 24]


def test_a_long_curve_is_thinned_to_means_over_equal_times():
    points = [CurvePoint(n, n / 10, float(n % 10)) for n in range(10_000)]
    found = series.thin(points, 100)
    assert len(found) == 100
    assert {round(point.value, 1) for point in found} == {4.5}
    assert found[-1].samples == 9999
    assert series.thin(points[:50], 100) == tuple(points[:50])
    assert len(series.thin([CurvePoint(n, 1.0, 1.0) for n in range(500)], 100)) == 1


def test_telemetry_has_the_same_time_axis():
    lines = [
        {"at": 1002.0, "samples": 8, "cpu_percent": 90.0, "gpu_power_w": None},
        {"at": 9004.0, "samples": 40, "cpu_percent": 80.0},
        {"at": "then", "samples": 40, "cpu_percent": 70.0},
        {},
    ]
    found = series.telemetry_curves(lines, track(*FIRST, *SECOND).attempts)
    assert found == {"cpu_percent": [CurvePoint(8, 2.0, 90.0), CurvePoint(40, 16.0, 80.0)]}
