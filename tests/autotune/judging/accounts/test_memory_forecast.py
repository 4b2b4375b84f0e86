"""Forecasts for memories of other sizes, with made-up peaks that are affine in the micro-batch."""

import math
from dataclasses import replace

import pytest

from autotune.judging.accounts import memory_forecast
from autotune.judging.decisions.history import History
from autotune.space import configurations, spaces
from autotune.space.knobs import Distribution, KeptBatch

GIB = 2**30
CONTEXT = GIB


def peak_bytes(config):
    """Returns 1 GiB, plus 1/8 GiB per sample, plus 1/8 GiB for accumulated gradients."""
    return GIB + (config["micro_batch_size"] + (config["accumulation_steps"] > 1)) * GIB // 8


@pytest.fixture
def trials(space, make_trial):
    """Trials on a GPU whose context takes 1 GiB; the third has the baseline's settings."""

    def make(number, size, steps):
        drawn = {"micro_batch_size": size, "accumulation_steps": steps}
        config = configurations.changed(space, space.baseline_config, drawn)
        peak = peak_bytes(config)
        trial = make_trial(number, 10.0, 0.2, peak=peak, limit=16 * GIB, **config)
        on_gpu = replace(trial.measurement, peak_reserved_bytes=peak, context_bytes=CONTEXT)
        return replace(trial, measurement=on_gpu)

    sizes = [(4, 1), (8, 1), (16, 1), (32, 1), (4, 2), (8, 2), (16, 2)]
    return [make(number, *size) for number, size in enumerate(sizes)]


def fits(space, trials, sizes, of=2, **rest):
    trial, sizes_bytes = replace(trials[of], **rest), [int(size * GIB) for size in sizes]
    return memory_forecast.forecast(trial, History(trials, space), sizes_bytes).fits


def sizes_of(found):
    return [(f.config["micro_batch_size"], f.config["accumulation_steps"]) for f in found]


def test_the_largest_micro_batch_that_surely_fits_keeps_the_effective_batch(space, trials):
    found = fits(space, trials, [3, 4, 8, 24])
    assert sizes_of(found) == [(4, 4), (8, 2), (32, 1), (128, 1)]
    for fit in found:
        assert fit.peak.low_bytes <= peak_bytes(fit.config) <= fit.peak.high_bytes <= fit.allowed_bytes
    assert [fit.effective_batch_size for fit in found] == [16, 16, 32, 128]
    assert [fit.keeps_batch for fit in found] == [True, True, False, False]


def test_the_learning_rate_follows_the_effective_batch(space, trials):
    config = {**trials[2].config, "learning_rate": 1.5e-4}
    found = fits(space, trials, [4, 8], config=config)
    assert [f.config["learning_rate"] for f in found] == [1.5e-4, pytest.approx(1.5e-4 * math.sqrt(2), 1e-3)]
    fixed = space.model_copy(update={"knobs": {n: k for n, k in space.knobs.items() if n != "learning_rate"}})
    without = {name: value for name, value in config.items() if name != "learning_rate"}
    assert "learning_rate" not in fits(fixed, trials, [8], config=without)[0].config


def test_sizes_outside_of_the_knob_are_considered_within_the_limits(space, trials):
    found = fits(space, trials, [2.5, 1000])
    assert sizes_of(found) == [(1, 16), (128, 1)], "limits.effective_batch_size is [8, 128]"


def test_powers_of_two_inside_a_range_are_considered(space, trials):
    ranged = {**space.knobs, "micro_batch_size": Distribution(randint=(1, 64))}
    assert sizes_of(fits(space.model_copy(update={"knobs": ranged}), trials, [4])) == [(8, 2)]


def test_a_rising_peak_is_reported(space, trials):
    rising = replace(trials[2], measurement=replace(trials[2].measurement, memory_is_rising=True))
    assert memory_forecast.forecast(rising, History([*trials[:2], rising], space)).is_rising
    assert not memory_forecast.forecast(trials[2], History(trials, space)).is_rising


def test_a_kept_effective_batch_is_never_changed(space, trials):
    kept = {**space.knobs, "accumulation_steps": KeptBatch(keep="effective_batch_size")}
    (found,) = fits(space.model_copy(update={"knobs": kept}), trials, [80])
    assert sizes_of([found]) == [(16, 1)]
    assert found.keeps_batch


def test_without_accumulation_the_effective_batch_changes(space, trials):
    left = {n: k for n, k in space.knobs.items() if n != "accumulation_steps"}
    baseline = {n: v for n, v in space.baseline.items() if n != "accumulation_steps"}
    plain = space.model_copy(update={"knobs": left, "baseline": baseline})
    known = [replace(t, config={n: v for n, v in t.config.items() if n in left}) for t in trials]
    (found,) = fits(plain, known, [4])
    assert (found.config["micro_batch_size"], found.effective_batch_size) == (8, 8)
    assert not found.keeps_batch


def test_room_for_the_context_is_left_only_on_a_gpu(space, trials):
    tight = space.revised(limits={"memory_fraction": 1.0})
    (on_gpu,) = fits(tight, trials, [8])
    host = [replace(t, measurement=replace(t.measurement, peak_reserved_bytes=None)) for t in trials]
    (on_host,) = fits(tight, host, [8])
    assert (on_gpu.allowed_bytes, on_host.allowed_bytes) == (7 * GIB, 8 * GIB)


def test_a_size_that_ran_out_of_as_much_memory_does_not_fit(space, trials, make_trial):
    failed = make_trial(9, failure="oom", limit=24 * GIB, **trials[0].config)
    found = fits(space, [*trials, failed], [16, 80])
    assert found[0].config["micro_batch_size"] < trials[0].config["micro_batch_size"]
    assert found[1].config["micro_batch_size"] == 128


def test_certain_and_doubtful_misfits_have_different_reasons(space, trials):
    small, near = fits(space, trials, [0.5, 2.3])
    assert small.config is None
    assert small.reason.startswith("nothing fits: micro_batch_size 1 predicted to need 1.2 GiB")
    assert near.config is None
    assert near.reason.startswith("not known: micro_batch_size 1 may need")


@pytest.mark.parametrize(
    ("measured", "reason"),
    [
        (0, "no trial has shown its peak memory"),
        (1, "the peak memory was measured with only one micro_batch_size, 4"),
    ],
)
def test_fewer_than_two_sizes_predict_nothing(space, trials, measured, reason):
    known = [replace(t, measurement=replace(t.measurement, peak_memory_bytes=None)) for t in trials]
    known[:measured] = trials[:measured]
    (found,) = fits(space, known, [8])
    assert (found.config, found.peak, found.reason) == (None, None, f"not known: {reason}")


def test_without_a_micro_batch_knob_nothing_is_predicted(make_trial):
    text = "{workload: 'a:b', baseline: {width: 1}, knobs: {width: {choice: [1, 2]}}}"
    space = spaces.complete(spaces.parse(text, "test"), "test")
    known = [replace(make_trial(n, 10.0, 0.2, peak=GIB), config={"width": n + 1}) for n in (0, 1)]
    (found,) = fits(space, known, [8], of=0)
    assert "micro_batch_size is no knob" in found.reason
