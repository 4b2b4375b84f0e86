"""Stopping rules, and the rivals that a running trial is compared with."""

import math
import random
from dataclasses import replace

import pytest

from autotune.core.measurement import Evaluation, Measurement, Metric, Throughput
from autotune.core.trial import Repeat, Status, StoppedFor
from autotune.judging.decisions import stopping
from autotune.judging.decisions.history import History
from autotune.judging.decisions.stopping import Rival, Threshold, verdict
from autotune.space.sections import Objective
from tests.autotune.conftest import curve_of, slices_of

BASELINE = curve_of([0.1, 0.2, 0.3, 0.4])
WHOLE = 400
AHEAD = Threshold(rivals=(Rival(3, 100.0, shared=False, samples=WHOLE),))
SOONER = Rival(3, 100.0, shared=False, samples=WHOLE, seconds=30.0)


def measure(speed=None, half_width=1.0, steps=8, **rest):
    throughput = None if speed is None else Throughput(speed, half_width, steps, 10.0)
    curve = curve_of(rest.pop("curve", ()))
    return Measurement(throughput=throughput, curve=curve, **rest)


def why_stop(measurement, threshold, samples=WHOLE):
    """Returns the reason to stop, None if the trial continues."""
    outcome = verdict(measurement, threshold, samples, {})
    return outcome and outcome.reason


@pytest.mark.parametrize(
    ("stopped_for", "measurement", "threshold"),
    [
        (StoppedFor.SLOW, measure(98.0), AHEAD),
        (StoppedFor.POOR, measure(curve=[0.05, 0.1]), Threshold(curve=BASELINE, keep=0.95, noise=0.02)),
        (
            StoppedFor.DOMINATED,
            measure(98.0, curve=[0.05, 0.1]),
            Threshold(rivals=(replace(AHEAD.rivals[0], curve=BASELINE),), noise=0.02),
        ),
        (StoppedFor.LATE, measure(10.0, samples=370), Threshold(rivals=(SOONER,))),
    ],
)
def test_a_stopped_trial_names_its_rule(stopped_for, measurement, threshold):
    found = verdict(measurement, threshold, WHOLE, {})
    assert (found.status, found.stopped_for) == (Status.STOPPED, stopped_for)


def test_a_trial_that_is_surely_slower_is_stopped_with_the_figures():
    assert why_stop(measure(98.0), AHEAD) == "at most 99.0 samples/s; trial 3 reaches 100.0"


@pytest.mark.parametrize("speed", [99.0, 101.0, 500.0])
def test_a_trial_whose_interval_reaches_the_rivals_continues(speed):
    assert why_stop(measure(speed), AHEAD) is None


def test_twice_the_drift_is_allowed_for():
    assert why_stop(measure(90.0), replace(AHEAD, drift=0.04)) is not None
    assert why_stop(measure(90.0), replace(AHEAD, drift=0.05)) is None


def test_speed_is_compared_relative_to_the_length():
    assert why_stop(measure(150.0), AHEAD, samples=800) == "800 samples take 5 s; trial 3 takes 4 s"
    assert why_stop(measure(250.0), AHEAD, samples=800) is None
    assert why_stop(measure(60.0), AHEAD, samples=200) is None
    assert why_stop(measure(40.0), AHEAD, samples=200) == "200 samples take 5 s; trial 3 takes 4 s"


def test_speeds_of_shared_and_unshared_trials_are_not_compared():
    assert why_stop(measure(10.0, shared=True), AHEAD) is None
    shared = Threshold(rivals=(Rival(3, 100.0, shared=True, samples=WHOLE),))
    assert why_stop(measure(10.0), shared) is None
    assert why_stop(measure(10.0, shared=True), shared) is not None


def test_speed_is_never_compared_between_devices_or_code():
    ours = Threshold(rivals=(Rival(3, 100.0, shared=False, samples=WHOLE, origin=("this", "now")),))
    assert why_stop(measure(10.0, device="this", revision="now"), ours) is not None
    assert why_stop(measure(10.0, device="that", revision="now"), ours) is None
    assert why_stop(measure(10.0, device="this", revision="then"), ours) is None


def test_a_disturbed_trial_is_not_compared_with_an_undisturbed_rival():
    busy = measure(10.0, telemetry={"others_cpu_percent": 60.0, "allowed_cpus": 2.0})
    assert why_stop(busy, AHEAD) is None
    as_busy = replace(AHEAD.rivals[0], others=0.27)
    assert why_stop(busy, Threshold(rivals=(as_busy,))) is not None
    busy = replace(busy, samples=370)
    assert why_stop(busy, Threshold(rivals=(SOONER,))) is None
    assert why_stop(busy, Threshold(rivals=(replace(SOONER, others=0.3),))) is not None


def test_too_few_steps_stop_nothing():
    assert why_stop(measure(10.0, steps=7), AHEAD) is None
    assert why_stop(measure(10.0, half_width=None), AHEAD) is None
    assert why_stop(measure(), AHEAD) is None


@pytest.mark.parametrize("seed", range(20))
def test_a_trial_slower_than_a_stopped_one_is_stopped_too(seed):
    rng = random.Random(seed)
    threshold = replace(AHEAD, drift=rng.uniform(0, 0.1))
    speeds = sorted(rng.uniform(50, 110) for _ in range(10))
    stopped = [why_stop(measure(speed), threshold) is not None for speed in speeds]
    assert stopped == sorted(stopped, reverse=True)


def test_a_quality_that_is_clearly_not_kept_stops_a_trial():
    threshold = Threshold(curve=BASELINE, keep=0.95, noise=0.02)
    reason = "quality 0.1000 after 200 samples; the baseline had 0.2000 by then"
    assert why_stop(measure(curve=[0.05, 0.1]), threshold) == reason
    assert why_stop(measure(curve=[0.05]), threshold) is None
    assert why_stop(measure(curve=[0.05, 0.19]), threshold) is None


def test_qualities_are_compared_at_equal_shares_of_a_training():
    """After 100 samples, a trial half as long is as far as the baseline after 200."""
    threshold = Threshold(samples=WHOLE, curve=BASELINE, keep=0.95, noise=0.02)
    reason = "quality 0.1000 after 200 samples; the baseline had 0.4000 by then"
    assert why_stop(measure(curve=[0.05, 0.1]), threshold, samples=200) == reason
    assert why_stop(measure(curve=[0.2, 0.4]), threshold, samples=200) is None
    assert why_stop(measure(curve=[0.05, 0.1, 0.15, 0.2]), threshold, samples=800) is None


def test_a_short_trial_may_be_worse_by_what_the_longest_training_would_gain():
    """A trial of a quarter of the length lacks two doublings, which here are worth 0.2."""
    threshold = Threshold(
        rivals=AHEAD.rivals, samples=WHOLE, curve=BASELINE, keep=0.95, noise=0.02, rate=0.1 / math.log(2)
    )
    quarter = {"samples": WHOLE // 4}
    at_half, at_three_quarters = Evaluation(50, 5.0, 0.01), Evaluation(75, 7.5, 0.11)
    short = replace(measure(), curve=(at_half, at_three_quarters))
    assert why_stop(short, threshold, **quarter) is None
    assert why_stop(short, replace(threshold, rate=0.0), **quarter) is not None
    poorer = replace(short, curve=(replace(at_half, quality=-0.1), replace(at_three_quarters, quality=0.0)))
    reason = "quality 0.0000 after 75 samples; the baseline would have, as short, about 0.1000 by then"
    assert why_stop(poorer, threshold, **quarter) == reason


def test_a_faster_trial_may_train_longer_than_its_rival():
    threshold = Threshold(
        rivals=AHEAD.rivals, samples=WHOLE, curve=BASELINE, keep=0.95, noise=0.02, rate=0.1 / math.log(2)
    )
    poor = [0.07, 0.11]
    assert why_stop(measure(110.0, curve=poor), threshold) is not None
    assert why_stop(measure(200.0, curve=poor), threshold) is None, "twice as long, it would gain 0.1"


def test_the_quality_to_keep_is_a_share_of_the_gain():
    """If the quality grows from 0.89 to 0.9, 0.895 is half of the gain."""
    threshold = Threshold(samples=200, curve=curve_of([0.895, 0.9]), keep=0.95, noise=0.02)
    assert why_stop(measure(curve=[0.89, 0.895]), threshold, samples=200) is None
    assert why_stop(measure(curve=[0.89, 0.895]), replace(threshold, start=0.89), samples=200) is not None


def test_as_long_as_the_noise_is_unknown_only_a_hopeless_quality_stops_a_trial():
    threshold = Threshold(curve=BASELINE, keep=0.95, noise=None)
    assert "quality 0.0000" in why_stop(measure(curve=[0.0, 0.0, 0.0]), threshold)
    poor = [0.7 * point.quality for point in BASELINE]
    assert why_stop(measure(curve=poor), threshold) is None


def test_under_pareto_a_slower_trial_continues_while_its_quality_may_win():
    front = Threshold(rivals=(Rival(3, 100.0, shared=False, samples=WHOLE, curve=BASELINE),), noise=0.02)
    assert why_stop(measure(50.0, curve=[0.1, 0.2]), front) is None
    assert why_stop(measure(50.0), front) is None
    assert "trial 3 reaches 100.0" in why_stop(measure(50.0, curve=[0.05, 0.1]), front)
    assert why_stop(measure(150.0, curve=[0.05, 0.1]), front) is None


def test_a_trial_later_than_the_best_time_to_target_is_stopped():
    threshold = Threshold(rivals=(SOONER,), times_late=1.2)
    assert why_stop(measure(10.0, samples=360), threshold) is None, (
        "36 s: it may be as quick with another seed"
    )
    reason = "target not reached after 37 s; trial 3 reached it in 30 s"
    assert why_stop(measure(10.0, samples=370), threshold) == reason
    assert why_stop(measure(None, samples=370), threshold) is None


def test_with_a_target_no_trial_is_stopped_for_its_speed():
    """A slower trial may need fewer samples."""
    assert why_stop(measure(10.0, samples=10), Threshold(rivals=(SOONER,))) is None


@pytest.mark.parametrize("change", [{"shared": True}, {"device": "that"}, {"revision": "then"}])
def test_times_to_target_are_compared_only_under_equal_conditions(change):
    """A slower device takes longer to the same target with any settings."""
    like = {"shared": False, "device": "this", "revision": "now"}
    threshold = Threshold(rivals=(replace(SOONER, origin=("this", "now")),))
    assert why_stop(measure(10.0, samples=370, **like), threshold) is not None
    assert why_stop(measure(10.0, samples=370, **like | change), threshold) is None


def rivals(threshold):
    return [(rival.number, rival.samples_per_s) for rival in threshold.rivals]


def test_before_anything_has_completed_nothing_is_stopped(space):
    assert why_stop(measure(1.0, curve=[0.0, 0.0]), stopping.threshold(History([], space))) is None


def test_the_rival_is_the_best_eligible_trial_by_its_lower_end(make_trial, space):
    baseline = make_trial(0, 10, 0.2, half_width=1)
    assert rivals(stopping.threshold(History([baseline], space))) == [(0, 9)]
    fast = make_trial(1, 40, 0.2, half_width=5, micro_batch_size=32)
    poor = make_trial(2, 90, 0.1, half_width=1, micro_batch_size=64)
    failed = make_trial(3, failure="oom", micro_batch_size=128)
    assert rivals(stopping.threshold(History([baseline, fast, poor, failed], space))) == [(1, 35)]


def test_a_trial_that_did_not_hold_is_no_rival(make_trial, space):
    baseline, fast = make_trial(0, 10, 0.2, half_width=1), make_trial(1, 40, 0.2, half_width=5, x=1)
    race = make_trial(2, race=(0, 1), slices=slices_of({1: 0.9}, apart=0.02))
    assert rivals(stopping.threshold(History([baseline, fast], space))) == [(1, 35)]
    assert rivals(stopping.threshold(History([baseline, fast, race], space))) == [(0, 9)]


def test_a_trial_that_barely_keeps_the_quality_is_no_rival(make_trial, space):
    """Its repeats may miss the quality, and the trials that it had stopped would be lost."""
    again = make_trial(1, 10, curve=[0.2, 0.2], half_width=1, repeat=Repeat(0, 0))
    baseline = make_trial(0, 10, curve=[0.2, 0.2], half_width=1)
    barely = make_trial(2, 40, curve=[0.19, 0.191], half_width=1, micro_batch_size=32)
    sound = make_trial(3, 30, curve=[0.19, 0.195], half_width=1, micro_batch_size=64)
    threshold = stopping.threshold(History([baseline, again, barely, sound], space))
    assert threshold.noise == 0.02
    assert rivals(threshold) == [(3, 29)]
    assert [p.quality for p in threshold.curve] == [0.2, 0.2]


def test_with_planned_lengths_the_bar_is_the_best_training_at_the_length_that_it_needs(make_trial, planned):
    """A trial that was too short to keep the quality must not stop those that are long enough."""

    def trained(number, quality, samples, **settings):
        config = {**planned.baseline_config, "length": samples, **settings}
        return make_trial(number, 10, half_width=1, curve=[quality], **config)

    trials = [trained(0, 0.2, 20_000), trained(1, 0.16, 10_000)]
    lucky = trained(2, 0.195, 8_000, learning_rate=2e-4)
    assert [r.samples for r in stopping.threshold(History(trials, planned)).rivals] == [20_000]
    (rival,) = stopping.threshold(History([*trials, lucky], planned)).rivals
    assert rival.number == 2
    assert rival.samples == pytest.approx(8_000 * 2 ** (0.005 / 0.04), abs=16)
    longer, slower = {**lucky.config, "length": rival.samples}, measure(7.0, half_width=0.1)
    threshold = stopping.threshold(History([*trials, lucky], planned))
    assert verdict(slower, threshold, rival.samples, {**longer, "learning_rate": 3e-4}) is not None
    assert verdict(slower, threshold, rival.samples, longer) is None, "a slow day of the same settings"


def test_with_a_target_the_bar_is_the_best_time(make_trial, space):
    to_target = space.revised(objective={"target": 0.2})

    def times(*trials):
        rivals = stopping.threshold(History(trials, to_target)).rivals
        return [(rival.number, rival.shared, rival.seconds) for rival in rivals]

    trials = [
        make_trial(0, 10, curve=[0.1, 0.1, 0.2, 0.2]),
        make_trial(1, 10, curve=[0.2, 0.2], precision="bf16"),
        make_trial(2, 99, curve=[0.1], precision="tf32"),
    ]
    assert times(*trials) == [(1, False, 20.0)]
    assert times(trials[0]) == [(0, False, 40.0)]
    assert times(make_trial(0, 10, curve=[0.1])) == [], "no trial has reached it"
    shared = make_trial(3, 8, curve=[0.2, 0.2], precision="fp16", shared=True)
    slower = make_trial(4, 4, curve=[0.2, 0.2], precision="fp8", shared=True)
    assert times(*trials, slower, shared) == [(1, False, 20.0), (3, True, 25.0)]


def test_under_same_training_only_speed_counts(make_trial, space):
    trials = [
        make_trial(0, 10, curve=[0.2, 0.2], half_width=1),
        make_trial(1, 10, curve=[0.2, 0.2], half_width=1, repeat=Repeat(0, 0)),
        make_trial(2, 30, curve=[0.1, 0.1], half_width=1, precision="bf16"),
    ]
    same = space.revised(objective={"select": "same-training"})
    threshold = stopping.threshold(History(trials, same))
    assert (rivals(threshold), threshold.curve) == ([(2, 29)], ())
    if_quality_counts = stopping.threshold(History(trials, space))
    assert rivals(if_quality_counts)[0][0] == 0
    assert if_quality_counts.curve


def test_under_pareto_every_trial_on_the_front_is_a_rival(make_trial, space):
    trials = [
        make_trial(0, 10, curve=[0.2], half_width=1),
        make_trial(1, 20, curve=[0.1], half_width=1, micro_batch_size=32),
        make_trial(2, 15, curve=[0.05], half_width=1, micro_batch_size=64),
    ]
    threshold = stopping.threshold(History(trials, space.revised(objective={"select": "pareto"})))
    assert rivals(threshold) == [(1, 19), (0, 9)]
    assert [rival.curve for rival in threshold.rivals] == [curve_of([0.1]), curve_of([0.2])]


def test_a_loss_is_reported_in_the_users_sign_and_unit():
    losses, metric = curve_of([-4.0, -3.0, -2.5, -2.0]), Metric("loss", minimize=True, unit="tokens")
    threshold = Threshold(rivals=AHEAD.rivals, curve=losses, keep=0.95, noise=0.02, metric=metric)
    why = why_stop(measure(curve=[-4.4, -3.3]), threshold)
    assert why == "loss 3.3000 after 200 tokens; the baseline had 3.0000 by then"
    assert why_stop(measure(98.0), threshold) == "at most 99.0 tokens/s; trial 3 reaches 100.0"


def test_an_absolute_slack_becomes_a_share(make_trial, space):
    goal = Objective(minimize="val_loss", within=0.1)
    in_tokens = space.model_copy(update={"objective": goal, "unit": "tokens"})
    found = stopping.threshold(History([make_trial(0, 10, curve=[-4.0, -3.0, -2.5, -2.0])], in_tokens))
    assert (found.keep, found.metric.minimize, found.metric.unit) == (pytest.approx(0.95), True, "tokens")
