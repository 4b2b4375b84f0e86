"""Time outside steps, measured in trials and scaled to the evaluations of the whole training."""

import math
from dataclasses import replace

import pytest

from autotune.core.measurement import Evaluation, Outside, Slice, Throughput
from autotune.core.trial import Repeat
from autotune.judging.accounts import overhead
from autotune.judging.decisions import claims
from autotune.judging.decisions.history import History
from autotune.judging.measurement import turns
from autotune.judging.measurement.meter import MeasuredStep, Meter, regular_pauses, with_evaluations
from autotune.space.sections import Objective, Training

STEP_S, SAMPLES = 0.1, 8


def steps(meter, count, at_s, samples, first_s=STEP_S):
    """Feeds steps; returns the clock and the samples after them."""
    for i in range(count):
        at_s, samples = at_s + (STEP_S if i else first_s), samples + SAMPLES
        meter.add(at_s, samples, evaluation=False)
    return at_s, samples


def evaluated(*taken_s, checkpoint_s=0.0):
    """A meter after evaluations of so many seconds, each followed by a step with a checkpoint."""
    meter = Meter(prefetched=0)
    at_s, samples = steps(meter, 40, 0.0, 0)
    for seconds in taken_s:
        at_s += seconds
        meter.add(at_s, samples, evaluation=True)
        at_s, samples = steps(meter, 40, at_s, samples, STEP_S + checkpoint_s)
    return meter


def test_an_evaluation_includes_its_checkpoint():
    assert evaluated().outside() == Outside()
    assert evaluated(5.0, checkpoint_s=2.0).outside().evaluation_s == pytest.approx(7.0)
    assert evaluated(5.0).outside().half_width_s is None, "one evaluation gives no interval"


def test_a_delayed_step_is_no_checkpoint():
    meter = evaluated(5.0, 5.0, 5.0)
    at_s, samples = steps(meter, 1, 1000.0, 10_000)
    meter.add(at_s + 5.0, samples, evaluation=True)
    steps(meter, 20, at_s + 5.0, samples, first_s=60.0)
    assert meter.outside().evaluation_s == pytest.approx(5.0)


def test_the_first_of_three_evaluations_is_left_out():
    outside = evaluated(60.0, 5.0, 5.2).outside()
    assert (outside.evaluations, outside.evaluation_s) == (3, pytest.approx(5.1))
    student_t = 12.706  # with one degree of freedom
    assert outside.half_width_s == pytest.approx(student_t * 0.1, rel=1e-3)
    assert evaluated(6.0, 5.0).outside().evaluation_s == pytest.approx(5.5)


def test_unreported_steps_are_deducted_from_an_evaluation():
    meter = Meter(prefetched=0)
    at_s, samples = steps(meter, 40, 0.0, 0)
    meter.add(at_s + 0.001, samples + 10 * SAMPLES, evaluation=False, queued=True)
    meter.add(at_s + 10 * STEP_S + 5.0, samples + 10 * SAMPLES, evaluation=True)
    assert meter.outside().evaluation_s == pytest.approx(5.0)


def test_records_before_the_next_step_belong_to_the_same_evaluation():
    meter = Meter(prefetched=0)
    at_s, samples = steps(meter, 40, 0.0, 0)
    for more_s, is_quality in ((5.0, True), (5.5, True), (7.0, False)):
        meter.add(at_s + more_s, samples, evaluation=is_quality)
    steps(meter, 20, at_s + 7.0, samples)
    assert (meter.outside().evaluations, meter.outside().evaluation_s) == (1, pytest.approx(7.0))


def test_an_evaluation_before_the_first_step_of_a_process_is_not_timed():
    meter = Meter(prefetched=0)
    meter.add(3.0, 0, evaluation=True)
    at_s, samples = steps(meter, 40, 3.0, 0)
    meter.restart()
    meter.add(at_s + 900.0, samples, evaluation=True)
    assert meter.outside().evaluation_s is None


def paused(every, times=20.0, count=1000):
    return [
        MeasuredStep(STEP_S * (times if every and i % every == every - 1 else 1), SAMPLES)
        for i in range(count)
    ]


def test_long_steps_at_regular_distances_are_pauses():
    assert regular_pauses(paused(100)) == pytest.approx(10 * 19 / (1000 + 10 * 19))
    assert regular_pauses([]) == regular_pauses(paused(0)) == 0


@pytest.mark.parametrize(
    "steps_",
    [
        paused(4),  # a loader that stalls
        paused(100, times=2.0),  # batches of different lengths
        paused(400),  # seen twice
        [MeasuredStep(STEP_S * (20 if i in {3, 40, 90, 500, 520, 800} else 1), SAMPLES) for i in range(1000)],
    ],
)
def test_other_long_steps_are_no_pauses(steps_):
    assert regular_pauses(steps_) == 0


def test_a_disturbance_hides_no_pauses():
    disturbed = paused(100)
    disturbed[450] = MeasuredStep(10 * STEP_S, SAMPLES)
    assert regular_pauses(disturbed) > 0.15


def test_the_speed_with_evaluations_includes_their_time():
    steady = Throughput(100.0, 1.0, 50, 5.0)
    found = with_evaluations(steady, Outside(4, 3.0, 0.2), 1000)
    whole_s = 10 * (1000 / 100 + 3.0)
    assert found.samples_per_s == pytest.approx(10_000 / whole_s)
    slow = with_evaluations(replace(steady, samples_per_s=99.0), Outside(4, 3.2), 1000)
    assert found.samples_per_s - slow.samples_per_s < found.half_width_per_s * 1.5
    assert slow.half_width_per_s is None
    assert with_evaluations(steady, Outside(), 1000) is None
    assert with_evaluations(None, Outside(4, 3.0), 1000) is None


WALL = Objective(keep=0.95, select="same-quality", speed="wall")


@pytest.fixture
def held(space):
    """A history whose trainings are evaluated every 1,000 samples unless given otherwise."""

    def make(trials, goal=WALL, every=1000):
        training = Training(samples=100_000, samples_per_evaluation=every)
        return History(trials, space.model_copy(update={"objective": goal, "training": training}))

    return make


def with_outside(trial, **figures):
    return replace(trial, measurement=replace(trial.measurement, outside=Outside(4, **figures)))


def test_the_share_of_evaluations_is_that_of_the_whole_training(make_trial, held):
    trial = with_outside(make_trial(0, 100.0, 0.2), evaluation_s=5.0, pauses=0.3)
    found = overhead.time_spent(trial, held([trial], Objective()))
    assert found.evaluations == pytest.approx(5 / 15)
    assert found.pauses == pytest.approx(0.3 * 10 / 15)
    assert (found.step_s, found.sample_s) == pytest.approx((0.01, 0.015))
    wall = overhead.time_spent(trial, held([trial]))
    assert wall.evaluations == pytest.approx(5 / 10), "the speed includes them"
    assert (wall.step_s, wall.sample_s) == pytest.approx((0.005, 0.01))


def test_a_whole_training_combines_the_errors_of_steps_and_evaluations(make_trial, held):
    trial = with_outside(make_trial(0, 100.0, 0.2, half_width=3.0), evaluation_s=5.0, half_width_s=1.0)
    found = overhead.time_spent(trial, held([trial], Objective()))
    alone, counted = (found.whole_s(10_000, is_counted=is_counted) for is_counted in (False, True))
    assert (alone.value, alone.high - alone.value) == pytest.approx((100.0, 3.0))
    assert counted.value == pytest.approx(150.0)
    assert counted.high - counted.value == pytest.approx(math.hypot(3.0, 10.0)), "1 s of 5 every 1000 samples"
    wall = overhead.time_spent(trial, held([trial])).whole_s(10_000, is_counted=True)
    assert (wall.value, wall.high - wall.value) == pytest.approx((100.0, 3.0)), "the speed includes them"
    unsure = with_outside(make_trial(0, 100.0, 0.2), evaluation_s=5.0)
    assert overhead.time_spent(unsure, held([unsure], Objective())).whole_s(100, is_counted=True).low is None


def test_the_times_of_trainings_include_evaluations_if_those_of_all_are_known(make_trial, held):
    slow = with_outside(make_trial(0, 100.0, 0.2, half_width=0.1), evaluation_s=5.0)
    fast = with_outside(make_trial(1, 200.0, 0.2, half_width=0.1, x=1), evaluation_s=5.0)
    times, are_counted = overhead.trainings_s(held([slow, fast], Objective()), slow, fast)
    assert (times, are_counted) == (pytest.approx([1500.0, 1000.0], rel=0.01), True)
    untimed = make_trial(1, 200.0, 0.2, half_width=0.1, x=1)
    times, are_counted = overhead.trainings_s(held([slow, untimed], Objective()), slow, untimed)
    assert (times, are_counted) == (pytest.approx([1000.0, 500.0], rel=0.01), False)
    assert overhead.trainings_s(held([slow], Objective()), slow, make_trial(1)) == ([], False)


def test_without_an_interval_the_share_of_evaluations_is_unknown(make_trial, held):
    trial = with_outside(make_trial(0, 100.0, 0.2), evaluation_s=5.0)
    assert overhead.time_spent(trial, held([trial], Objective(), every=None)).evaluations is None
    assert overhead.time_spent(trial, held([trial], every=None)).evaluations is None, "no evaluation"
    curve = tuple(Evaluation(n, 1.0, 0.2) for n in (2000, 4000))
    measured = replace(trial.measurement, curve=curve, quality_samples=4000)
    evaluated = replace(trial, measurement=measured)
    spent = overhead.time_spent(evaluated, held([evaluated], every=None))
    assert spent.evaluations == pytest.approx(5 / 2000 * 100)
    untimed = make_trial(0, 100.0, 0.2)
    assert overhead.time_spent(untimed, held([untimed])).evaluations is None
    assert overhead.time_spent(make_trial(1), held([untimed])) is None


def test_a_race_adds_the_evaluations_of_the_trial(make_trial, held):
    trial = with_outside(make_trial(0, 100.0, 0.2), evaluation_s=2.0, half_width_s=0.4)
    space = held([]).space
    assert overhead.in_race(trial, space) == pytest.approx((2.0 / 1000, 0.4 / 1000 * 100))
    _, unsure = overhead.in_race(with_outside(trial, evaluation_s=2.0, half_width_s=0.0), space)
    assert unsure == pytest.approx(0.05 * 2.0 / 1000 * 100), "at least the usual variation between runs"
    assert overhead.in_race(trial, held([], Objective()).space) == (0.0, 0.0)
    assert overhead.in_race(make_trial(0, 100.0, 0.2), space) == (0.0, 0.0)


def raced(factor, outside_s, unsure=0.0, rounds=20):
    """Turns of 100 samples, which take the baseline a second; `outside_s` is added per sample."""
    return tuple(
        Slice(number, i, 100, (1 + 0.01 * (-1) ** i) / (factor if number else 1), 10, 100 * more_s, unsure, i)
        for i in range(1, rounds + 1)
        for number, more_s in enumerate(outside_s)
    )


def test_added_evaluations_count_in_a_race():
    alike = turns.ratio(raced(1.0, (0.01, 0.005)), 1, 0)
    assert alike.value == pytest.approx(2 / 1.5, rel=0.01)
    assert turns.ratio(raced(1.0, (0.0, 0.0)), 1, 0).value == pytest.approx(1.0)


def test_uncertain_evaluations_widen_the_interval():
    sure, unsure = (turns.ratio(raced(1.0, (0.01, 0.009), part), 1, 0) for part in (0.0, 0.05))
    assert sure.value == unsure.value
    assert sure.low > 1 > unsure.low
    assert math.log(unsure.high / unsure.value) >= math.hypot(0.05, 0.05)


def test_with_speed_wall_fewer_evaluations_can_win(make_trial, held):
    def confirmed(speed, more_s):
        trials = [make_trial(0, 100.0, 0.2, half_width=0.5), make_trial(1, speed, 0.2, half_width=0.5)]
        race = make_trial(2, race=(0, 1), slices=raced(1.0, (0.01, more_s), unsure=0.01))
        seeds = [make_trial(3 + i, speed, 0.2, repeat=Repeat(1, i + 1)) for i in range(3)]
        return held([*trials, race, *seeds], WALL.model_copy(update={"keep": 0.0}))

    fewer = confirmed(133.0, 0.005)
    assert claims.claim(1, fewer).factor.low > 1.2
    alike = confirmed(101.0, 0.0099)
    assert "and may be only" in claims.claim(1, alike).why_not
