import pickle
import random

import pytest

from autotune.judging.measurement.estimates import student_t
from autotune.judging.measurement.meter import (
    MeasuredStep,
    Meter,
    Stamp,
    counted_steps,
    prefetched_steps,
    steps_to_start,
    throughput,
)


def feed(meter, seconds, samples_per_step=8, start_s=0.0, first=0):
    """Feeds training records that take `seconds` each; returns the clock and the samples after them."""
    at_s, samples = start_s, first
    for duration in seconds:
        at_s += duration
        samples += samples_per_step
        meter.add(at_s, samples, evaluation=False)
    return at_s, samples


def test_the_slow_first_steps_do_not_count():
    meter = Meter(prefetched=0)
    feed(meter, [1.0, 30.0, 5.0, 2.0] + [0.1] * 40)
    assert meter.throughput().samples_per_s == pytest.approx(80)


def test_a_burst_of_prefetched_batches_does_not_count():
    meter = Meter(prefetched=4)
    feed(meter, [1.0] + [0.001] * 7 + [0.1] * 40)
    assert meter.throughput().samples_per_s == pytest.approx(80)


def test_evaluation_and_the_burst_after_it_do_not_count():
    meter = Meter(prefetched=4)
    at_s, samples = feed(meter, [0.1] * 40)
    meter.add(at_s + 100, samples, evaluation=True)
    feed(meter, [0.001] * 4 + [0.1] * 40, start_s=at_s + 100, first=samples)
    assert meter.throughput().samples_per_s == pytest.approx(80)


def test_the_checkpoint_after_an_evaluation_does_not_count():
    meter = Meter(prefetched=0)
    at_s, samples = feed(meter, [0.1] * 40)
    for _ in range(4):
        meter.add(at_s + 5, samples, evaluation=True)
        at_s, samples = feed(meter, [3.0] + [0.1] * 9, start_s=at_s + 5, first=samples)
    assert meter.throughput().samples_per_s == pytest.approx(80)


@pytest.mark.parametrize("prefetched", [0, 4])
def test_a_training_with_an_evaluation_after_every_step_has_a_figure(prefetched):
    """As in the training of a graph, where one step is an epoch; the first step is a slow start."""
    meter = Meter(prefetched)
    at_s, samples = 0.0, 0
    for seconds in [9.0, *[0.1] * 40]:
        at_s, samples = feed(meter, [seconds], start_s=at_s, first=samples)
        at_s += 5
        meter.add(at_s, samples, evaluation=True)
    assert meter.throughput().samples_per_s == pytest.approx(80)


def test_the_time_between_two_processes_does_not_count():
    meter = Meter(prefetched=0)
    _, samples = feed(meter, [0.1] * 40)
    meter.restart()
    feed(meter, [9.0, 30.0, 5.0, 2.0] + [0.1] * 40, start_s=5000.0, first=samples)
    assert meter.throughput().samples_per_s == pytest.approx(80)


def test_no_more_than_half_of_a_short_trial_is_warm_up():
    meter = Meter(prefetched=100)
    feed(meter, [1.0] * 5)
    assert meter.throughput().steps == 2


def test_without_a_step_there_is_no_figure():
    meter = Meter(prefetched=0)
    assert meter.throughput() is None
    meter.add(1.0, 8, evaluation=False)
    assert meter.throughput() is None


def test_samples_that_repeat_or_go_back_are_no_steps():
    meter = Meter(prefetched=0)
    feed(meter, [0.1] * 20)
    meter.add(100.0, 8, evaluation=False)
    assert meter.throughput().samples_per_s == pytest.approx(80)


def test_reports_within_a_step_are_a_part_of_it():
    """As from a script that logs every micro-batch, and counts samples when they are accumulated."""
    meter, yielded = Meter(prefetched=0), []
    for n in range(1, 80):
        meter.add(0.1 * n, n // 4 * 8, evaluation=False)
        yielded.append(Stamp(0.1 * n, n // 4 * 8, is_step=True))
    assert meter.throughput().samples_per_s == pytest.approx(20)
    assert meter.training_s == pytest.approx(7.6 - 0.1)
    steps = counted_steps(yielded, 0.0, 9.0, ready=0)
    assert {round(step.samples / step.seconds) for step in steps} == {20}


def test_too_few_steps_have_no_interval():
    assert throughput([MeasuredStep(1.0, 8)] * 3).half_width_per_s is None
    assert throughput([MeasuredStep(1.0, 8)] * 4).half_width_per_s == pytest.approx(0, abs=1e-9)


def test_the_interval_covers_the_truth_at_its_level():
    rng = random.Random(0)
    covered = 0
    for _ in range(300):
        figure = throughput([MeasuredStep(rng.uniform(0.05, 0.15), 8) for _ in range(200)])
        covered += abs(figure.samples_per_s - 80) <= figure.half_width_per_s
    assert 0.90 < covered / 300 < 0.99


def test_the_interval_widens_when_steps_are_correlated():
    """If a loader is slow for a while, an interval from single steps would be far too narrow."""
    rng = random.Random(0)
    covered = 0
    for _ in range(200):
        level, steps = 0.0, []
        for _ in range(400):
            level = 0.9 * level + rng.gauss(0, 0.01)
            steps.append(MeasuredStep(max(0.01, 0.1 + level), 8))
        figure = throughput(steps)
        covered += abs(figure.samples_per_s - 80) <= figure.half_width_per_s
    assert covered / 200 > 0.7


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        ({}, 0),
        ({"num_workers": 4}, 8),
        ({"num_workers": 4, "prefetch_factor": 4}, 16),
        ({"num_workers": 4, "accumulation_steps": 3}, 3),
    ],
)
def test_prefetched_steps_follow_from_the_loaders_settings(settings, steps):
    assert prefetched_steps(settings) == steps


def test_the_training_time_excludes_evaluations_and_restarts():
    meter = Meter(prefetched=0)
    at_s, samples = feed(meter, [0.1] * 11)
    meter.add(at_s + 100, samples, evaluation=True)
    at_s, samples = feed(meter, [0.1] * 10, start_s=at_s + 100, first=samples)
    assert meter.training_s == pytest.approx(2.0)
    meter.restart()
    feed(meter, [500.0, 0.1], start_s=at_s, first=samples)
    assert meter.training_s == pytest.approx(2.1)


@pytest.mark.parametrize(
    ("level", "degrees", "expected"),
    [
        *((0.95, 1, 12.706), (0.95, 2, 4.303), (0.95, 3, 3.182), (0.95, 19, 2.093), (0.95, 120, 1.980)),
        *((0.99, 1, 63.657), (0.99, 2, 9.925), (0.99, 9, 3.250), (0.8, 4, 1.533), (0.5, 30, 0.683)),
    ],
)
def test_students_t_matches_the_tables(level, degrees, expected):
    assert student_t(level, degrees) == pytest.approx(expected, abs=1e-3)


def test_the_recent_step_time_is_the_median_of_the_last_steps():
    meter = Meter(prefetched=0)
    assert meter.recent_step_s() is None
    at_s, samples = feed(meter, [5.0] * 30)
    assert meter.recent_step_s() == pytest.approx(5.0)
    meter.add(at_s + 100, samples, evaluation=True)
    feed(meter, [0.1] * 21, start_s=at_s + 100, first=samples)
    assert meter.recent_step_s() == pytest.approx(0.1)


def stamps(*seconds, evaluations=()):
    """Returns records at those times, each with 8 more samples unless it is an evaluation."""
    records, samples = [], 0
    for at_s in seconds:
        samples += 0 if at_s in evaluations else 8
        records.append(Stamp(at_s, samples, is_step=at_s not in evaluations))
    return records


def test_only_whole_steps_within_the_time_are_counted():
    yielded = stamps(0.0, 1.0, 2.5, 3.5, 4.5, 6.0)
    whole = [MeasuredStep(seconds, 8) for seconds in (1.5, 1.0, 1.0)]
    assert counted_steps(yielded, 0.5, 5.0, ready=0) == whole
    assert counted_steps(yielded, 1.1, 2.6, ready=0) == [], "a single record only marks the start of a step"
    assert counted_steps([], 0.0, 9.0, ready=0) == []


def test_steps_next_to_an_evaluation_are_not_counted():
    yielded = stamps(0.0, 1.0, 5.0, 9.0, 10.0, evaluations=(5.0,))
    assert counted_steps(yielded, 0.0, 10.0, ready=0) == [MeasuredStep(1.0, 8), MeasuredStep(1.0, 8)]


def test_steps_that_only_follow_evaluations_are_counted_from_their_ends():
    yielded = stamps(2.0, 2.5, 4.0, 4.5, 6.0, 6.5, evaluations=(2.5, 4.5, 6.5))
    assert counted_steps(yielded, 0.0, 9.0, ready=0) == [MeasuredStep(1.5, 8), MeasuredStep(1.5, 8)]


def test_at_most_half_of_the_steps_are_left_out_as_prefetched():
    yielded = stamps(0.0, 0.25, 0.5, 1.5, 2.5, 3.5)
    assert counted_steps(yielded, 0.0, 9.0, ready=2) == [MeasuredStep(1.0, 8)] * 3
    assert len(counted_steps(yielded, 0.0, 9.0, ready=99)) == 3
    assert len(counted_steps(stamps(0.0, 1.0), 0.0, 9.0, ready=99)) == 1


def test_the_start_takes_the_prefetched_steps_and_three_more():
    assert steps_to_start({}) == 3
    assert steps_to_start({"num_workers": 2, "prefetch_factor": 3}) == 9


def test_steps_that_compile_are_not_in_the_steady_state():
    meter = Meter(prefetched=0)
    for step in range(1, 21):
        compiled_s = 39.0 * (step > 14)
        meter.add(0.1 * step + compiled_s, 8 * step, evaluation=False, compiling=step == 15)
    assert meter.throughput().samples_per_s == pytest.approx(80)
    assert meter.training_s == pytest.approx(19 * 0.1 + 39), "compiling is part of the training's time"


def test_the_burst_after_a_compilation_does_not_count():
    meter, at_s = Meter(prefetched=4), 0.0
    for step in range(1, 61):
        at_s += 30.0 if step == 30 else 0.001 if 30 < step <= 34 else 0.1
        meter.add(at_s, 8 * step, evaluation=False, compiling=step == 30)
    assert meter.throughput().samples_per_s == pytest.approx(80)


def test_queued_steps_count_with_the_next_completed_one():
    meter = Meter(prefetched=0)
    for step in range(1, 41):
        is_queued = step % 5 != 0
        at_s = (0.001 if is_queued and step < 5 else 0.1) * step
        meter.add(at_s, 8 * step, evaluation=False, queued=is_queued)
    found = meter.throughput()
    assert found.samples_per_s == pytest.approx(80)
    assert found.steps == 30, "35 ended after a record, and the 5 that include the third are warm-up"


def test_queued_steps_before_an_evaluation_do_not_count():
    meter = Meter(prefetched=0)
    for step in range(1, 11):
        meter.add(0.1 * step, 8 * step, evaluation=False)
    meter.add(1.001, 8 * 100, evaluation=False, queued=True)
    meter.add(10.0, 8 * 100, evaluation=True)
    for step in range(1, 11):
        meter.add(10.0 + 0.1 * step, 8 * (100 + step), evaluation=False)
    assert meter.throughput().samples_per_s == pytest.approx(80)


@pytest.mark.slow
def test_a_long_training_merges_its_steps_and_keeps_its_figures():
    """The speed varies by 1% from step to step and by 10% from day to day; the interval covers both."""
    rng, meter = random.Random(0), Meter(prefetched=0)
    seconds = [0.1 * rng.uniform(0.99, 1.01) * (1.1 if 30_000 < n < 60_000 else 1.0) for n in range(100_000)]
    feed(meter, [0.1, *[0.1] * 6, *seconds])
    found, expected = meter.throughput(), throughput([MeasuredStep(s, 8) for s in [*[0.1] * 3, *seconds]])
    assert found.steps == expected.steps
    assert found.samples_per_s == pytest.approx(expected.samples_per_s)
    assert found.half_width_per_s == pytest.approx(expected.half_width_per_s, rel=0.02)
    assert len(pickle.dumps(meter)) < 2 * 2**20
