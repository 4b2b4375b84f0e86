"""The records of a long training that are kept."""

import random

import pytest

from autotune.core.measurement import Metric
from autotune.trials.attempt import Thinner
from autotune.trials.progress import Progress

HOUR_S = 3600.0


def steps(first, last, begun_s=HOUR_S):
    """Returns steps of 1/8 s each."""
    return [{"samples": 8 * i, "at_s": begun_s + i / 8} for i in range(first, last)]


def thinner():
    """Returns a thinner after an hour of records."""
    thin = Thinner("score", 1.0)
    thin([{"samples": 0, "at_s": 0.0}])
    return thin


def samples(records):
    return [record["samples"] for record in records]


def test_one_step_a_second_is_kept():
    thin = thinner()
    assert samples(thin(steps(1, 31))) == [8, 72, 136, 200]
    assert samples(thin.rest()) == [240]  # the last one


def test_a_kept_record_has_the_number_of_steps_it_stands_for():
    thin = thinner()
    evaluated = {"samples": 240, "at_s": HOUR_S + 4.0, "score": 1.0}
    kept = [*thin([*steps(1, 31), evaluated, *steps(31, 34, begun_s=HOUR_S + 4.0)]), *thin.rest()]
    assert [(record["samples"], record.get("stands_for")) for record in kept] == [
        (8, None),
        (72, 8),
        (136, 8),
        (200, 8),
        (240, 5),
        (240, None),
        (248, None),
        (264, 2),
    ]


def test_a_record_without_new_samples_is_no_step():
    thin = thinner()
    kept = thin([{"samples": 8 * (i // 2), "at_s": HOUR_S + i / 8} for i in range(2, 21)])
    assert [record.get("stands_for") for record in kept] == [None, 4, 4]


def test_in_the_first_seconds_all_are_kept():
    thin = Thinner("score", 1.0)
    assert thin(steps(1, 200, begun_s=50.0)) == steps(1, 200, begun_s=50.0)


def test_an_evaluation_is_kept_with_the_step_before_it():
    thin = thinner()
    evaluated = {"samples": 40, "at_s": HOUR_S + 0.9, "score": 1.0}
    assert samples(thin([*steps(1, 6), evaluated, *steps(8, 12)])) == [8, 40, 40]
    assert samples(thin.rest()) == [88]
    assert thin.rest() == []


def test_a_step_before_which_something_was_compiled_is_kept():
    compiled = {"samples": 24, "at_s": HOUR_S + 0.3, "is_compiling": True}
    assert thinner()([*steps(1, 3), compiled])[-2:] == [*steps(2, 3), compiled]


def test_without_an_interval_everything_is_kept():
    assert Thinner("score", 0.0)(steps(1, 5)) == steps(1, 5)


def test_kept_records_have_the_same_speed():
    """Compares all records with one a second; steps take 10 to 50 ms, evaluations after 200 samples 2 s."""
    rng, records, at_s = random.Random(0), [], 0.0
    for i in range(1, 4001):
        at_s += rng.uniform(0.01, 0.05)
        records.append({"samples": 8 * i, "at_s": at_s})
        if i % 200 == 0:
            at_s += 2.0
            records.append({"samples": 8 * i, "at_s": at_s, "score": 0.5})
    thin = Thinner("score", 1.0)
    thin([{"samples": 0, "at_s": -HOUR_S}])
    kept = thin(records)
    assert len(kept) < len(records) / 10

    found = [speed(some) for some in (records, kept)]
    assert found[0].steps_per_s == pytest.approx(1 / 0.03, rel=0.02)
    assert found[1].steps_per_s == pytest.approx(found[0].steps_per_s, rel=0.01)
    assert abs(found[0].samples_per_s / found[1].samples_per_s - 1) < 0.01
    assert found[1].half_width_per_s < 0.02 * found[1].samples_per_s


def speed(records):
    progress = Progress(Metric("score"), {})
    for record in records:
        progress.count(record)
    return progress.measurement().throughput
