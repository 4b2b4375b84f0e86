import itertools
import random
from dataclasses import replace

import pytest

from autotune.core.trial import Outcome, Shortage, Status
from autotune.judging.decisions.history import History
from autotune.judging.decisions.objective import over_memory
from autotune.judging.decisions.stopping import Threshold
from autotune.memory.feasibility import MemoryModel
from autotune.searcher.screening import Screening
from autotune.space import spaces

GIB = 2**30
SIZES = [4, 8, 16, 32, 64, 128, 256]


@pytest.fixture
def failed(make_trial):
    return [make_trial(3, failure="oom", micro_batch_size=32, accumulation_steps=2, precision="fp32")]


def config(**changes):
    return {"micro_batch_size": 32, "accumulation_steps": 2, "precision": "fp32"} | changes


def ruled_out(wanted, trials):
    return MemoryModel(trials).explain_misfit(wanted)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"micro_batch_size": 64},
        {"accumulation_steps": 4},
        {"learning_rate": 1e-3, "num_workers": 4},
        {"weight_decay": 0.1},
        {"precision": "tf32"},
        {"activation_checkpointing": False},
    ],
)
def test_a_configuration_that_needs_no_less_than_a_failed_one_is_ruled_out(failed, changes):
    assert "trial 3" in ruled_out(config(**changes), failed)


@pytest.mark.parametrize(
    "changes",
    [
        {"micro_batch_size": 16},
        {"accumulation_steps": 1},
        {"precision": "bf16"},
        {"activation_checkpointing": True},
        {"unknown_knob": 1},
    ],
)
def test_a_configuration_that_may_need_less_is_not_ruled_out(failed, changes):
    assert ruled_out(config(**changes), failed) is None


def test_a_margin_limits_sizes_to_a_share_of_the_smallest_failure(make_trial):
    fitted = make_trial(0, micro_batch_size=128, precision="bf16")
    trials = [fitted, make_trial(1, failure="oom", micro_batch_size=32, precision="fp32")]
    wanted, sizes = {"micro_batch_size": 64, "precision": "fp8"}, [8, 16, 32, 64]
    assert MemoryModel(trials).largest_worth_trying(wanted, sizes) == 64
    assert MemoryModel(trials, margin=0.7).largest_worth_trying(wanted, sizes) == 32
    assert MemoryModel(trials, margin=0.4).largest_worth_trying(wanted, sizes) == 16
    known = {"micro_batch_size": 128, "precision": "bf16"}
    assert MemoryModel(trials, margin=0.4).largest_worth_trying(known, [*sizes, 128]) == 128
    assert MemoryModel(trials).is_known_to_fit(known)
    assert not MemoryModel(trials).is_known_to_fit(wanted)


def test_other_failures_are_no_evidence_about_memory(make_trial):
    failed = [make_trial(3, failure=kind, accumulation_steps=2) for kind in ("error", "timeout", "lost")]
    assert ruled_out(failed[0].config, failed) is None


@pytest.mark.parametrize(("name", "value"), [("weight_decay", 0.1), ("grad_clip_value", 1.0)])
def test_settings_without_effect_on_memory_share_an_out_of_memory(make_trial, name, value):
    """`r2gen` clips gradients in place, and applies weight decay within the update."""
    knobs = f"{{micro_batch_size: {{choice: [4, 16]}}, {name}: {{choice: [{value}, 0.5]}}}}"
    baseline = f"{{micro_batch_size: 4, {name}: {value}, precision: fp32}}"
    text = f"{{workload: r2gen, baseline: {baseline}, knobs: {knobs}}}"
    space = spaces.complete(spaces.parse(text, "test"), "test")
    failed = make_trial(1, failure="oom", **{name: value})
    screening = Screening(History([failed], space), Threshold(), None)
    assert "ran out of it" in screening({**failed.config, name: 0.5}).reason


@pytest.mark.parametrize("shortage", Shortage)
def test_after_an_out_of_memory_with_loader_workers_fewer_may_fit(make_trial, shortage):
    trial = make_trial(3, failure="oom", num_workers=4)
    failed = [replace(trial, outcome=replace(trial.outcome, shortage=shortage))]
    assert ruled_out(trial.config | {"num_workers": 2}, failed) is None
    assert ruled_out(trial.config | {"num_workers": 8}, failed)


def test_a_gpu_out_of_memory_does_not_depend_on_workers(make_trial):
    failed = make_trial(3, failure="oom", num_workers=4)
    assert ruled_out(failed.config | {"num_workers": 0}, [failed])


def test_a_failure_with_checkpointing_rules_out_running_without_it(make_trial):
    failed = [make_trial(3, failure="oom", activation_checkpointing=True, precision="fp16")]
    assert ruled_out(failed[0].config | {"activation_checkpointing": False, "precision": "bf16"}, failed)
    assert not ruled_out(failed[0].config | {"activation_checkpointing": False, "precision": "fp8"}, failed)


def peak(micro_batch_size=16, precision="fp32", activation_checkpointing=False, **_):
    """Returns the GiB of a training with 2 GiB of state."""
    sample = 0.13 * (1.0 if precision in {"fp32", "tf32"} else 0.6) * (0.4 if activation_checkpointing else 1)
    return 2.0 + sample * micro_batch_size


@pytest.fixture
def ran(make_trial):
    """Makes a completed trial whose peak is `noise` times that of its configuration; the limit is 24 GiB."""

    def make(number, noise=1.0, **changes):
        config = {"micro_batch_size": 16, "precision": "fp32"} | changes
        return make_trial(number, 1.0, 0.1, peak=int(peak(**config) * noise * GIB), limit=24 * GIB, **config)

    return make


def test_a_predicted_out_of_memory_is_reported_with_the_prediction(ran):
    model = MemoryModel([ran(i, micro_batch_size=size) for i, size in enumerate((4, 16, 64))], fraction=0.85)
    assert model.explain_misfit(config(accumulation_steps=1, micro_batch_size=128)) is None
    reason = model.explain_misfit(config(accumulation_steps=1, micro_batch_size=256))
    assert reason == "predicted to need 35.3 GiB (32.0 to 38.6) of 20.4 GiB"


def test_an_observed_out_of_memory_is_named_before_a_prediction(make_trial):
    failed = make_trial(3, failure="oom", micro_batch_size=32)
    reason = MemoryModel([failed]).explain_misfit(failed.config | {"micro_batch_size": 64})
    assert reason == "needs no less memory than trial 3, which ran out of it"
    assert MemoryModel([failed]).explain_misfit(failed.config | {"micro_batch_size": 16}) is None


def test_an_out_of_memory_under_a_smaller_limit_is_no_evidence(make_trial):
    failed = make_trial(3, failure="oom", limit=8 * GIB)
    assert MemoryModel([failed], limit_bytes=8 * GIB).explain_misfit(failed.config)
    assert MemoryModel([failed], limit_bytes=24 * GIB).explain_misfit(failed.config) is None


def test_an_out_of_memory_under_a_smaller_cap_is_no_evidence(make_trial):
    failed = make_trial(3, failure="oom", limit=8 * GIB)
    capped = replace(failed, measurement=replace(failed.measurement, memory_cap_bytes=4 * GIB))
    assert MemoryModel([capped], fraction=0.5, limit_bytes=8 * GIB).explain_misfit(failed.config)
    assert MemoryModel([capped], fraction=0.85, limit_bytes=8 * GIB).explain_misfit(failed.config) is None
    uncapped = MemoryModel([failed], fraction=0.85, limit_bytes=8 * GIB)
    assert uncapped.explain_misfit(failed.config)


def test_a_large_step_must_fit_into_the_cap(ran):
    trials = [ran(0, micro_batch_size=4), ran(1, micro_batch_size=8)]
    on_a_gpu = [replace(t, measurement=replace(t.measurement, peak_reserved_bytes=1)) for t in trials]

    wanted = config(accumulation_steps=1, micro_batch_size=64)
    found = MemoryModel(trials).predict(wanted)
    fraction = (found.expected_bytes + found.high_bytes) / 2 / (24 * GIB)
    on_the_host, capped = (
        MemoryModel(known, fraction=fraction, limit_bytes=24 * GIB).largest_worth_trying(wanted, SIZES)
        for known in (trials, on_a_gpu)
    )
    assert capped < on_the_host == 64


def test_an_out_of_memory_in_a_race_is_no_evidence_about_its_first_member(make_trial):
    race = replace(make_trial(9, failure="oom", limit=8 * GIB), race=(0, 3))
    assert MemoryModel([race], limit_bytes=8 * GIB).explain_misfit(race.config) is None


def test_the_peak_of_a_trial_that_ran_out_of_memory_does_not_count(make_trial):
    failed = make_trial(3, failure="oom", peak=GIB, limit=2 * GIB)
    assert MemoryModel([failed]).predict(failed.config) is None


def test_memory_cached_by_the_allocator_does_not_count(ran):
    trial = ran(0)
    cached = replace(trial.measurement, peak_memory_bytes=4 * GIB, peak_reserved_bytes=20 * GIB)
    predicted = MemoryModel([replace(trial, measurement=cached)]).predict(trial.config)
    assert predicted.expected_bytes == pytest.approx(4 * GIB, rel=0.02)
    assert over_memory(cached, 0.85) is None, "judged by the same figure as predicted"
    assert over_memory(replace(cached, peak_memory_bytes=21 * GIB), 0.85)


def test_a_rising_peak_is_weaker_evidence_than_a_settled_one(ran):
    trials = [ran(n) for n in range(4)]
    rising = [replace(t, measurement=replace(t.measurement, memory_is_rising=True)) for t in trials]
    sure, unsure = (MemoryModel(known).predict(trials[0].config) for known in (trials, rising))
    assert unsure.high_bytes > 1.1 * sure.high_bytes
    assert unsure.high_bytes > 1.1 * trials[0].measurement.peak_memory_bytes


def test_a_rising_peak_is_ignored_next_to_a_settled_one_of_the_same_size(ran):
    settled = ran(0)
    less = round(0.7 * settled.measurement.peak_memory_bytes)
    rising = replace(settled.measurement, peak_memory_bytes=less, memory_is_rising=True)
    both = MemoryModel([settled, replace(settled, number=9, measurement=rising)])
    assert both.predict(settled.config) == MemoryModel([settled]).predict(settled.config)


def test_a_trial_stopped_early_has_shown_its_peak(ran):
    stopped = replace(ran(0), outcome=Outcome(Status.STOPPED))
    assert MemoryModel([stopped]).predict(stopped.config)


def test_one_or_two_close_peaks_are_weak_evidence_about_much_larger_sizes(ran):
    close = [ran(0, micro_batch_size=8), ran(1, micro_batch_size=16)]
    for trials in (close[:1], close):
        found = MemoryModel(trials).predict(ran(2, micro_batch_size=256).config)
        assert found.high_bytes - found.low_bytes > 0.3 * found.expected_bytes


def test_peaks_that_scatter_widen_the_interval(ran):
    def width(scatter):
        noise = random.Random(0)
        trials = [ran(n, noise.gauss(1, scatter), micro_batch_size=n) for n in range(4, 64)]
        found = MemoryModel(trials).predict(trials[0].config | {"micro_batch_size": 64})
        return (found.high_bytes - found.low_bytes) / found.expected_bytes

    assert width(0.0) == pytest.approx(width(0.015), rel=0.1)
    assert width(0.1) > 3 * width(0.02)


def test_a_length_scales_the_memory_of_a_sample(ran):
    trials = [ran(i, micro_batch_size=size, max_seq_length=60) for i, size in enumerate((4, 32, 128))]
    found = MemoryModel(trials).predict(trials[1].config | {"max_seq_length": 120})
    assert found.expected_bytes / GIB == pytest.approx(peak(micro_batch_size=64), rel=0.05)


GROUPS = [
    {"precision": precision, "activation_checkpointing": checkpointing, "channels_last": last}
    for precision, checkpointing, last in itertools.product(("fp32", "tf32", "bf16", "fp16"), (0, 1), (0, 1))
]


def some_trials(ran, seed, count):
    rng = random.Random(seed)
    for number in range(count):
        group = {name: bool(v) if isinstance(v, int) else v for name, v in rng.choice(GROUPS).items()}
        yield ran(number, rng.gauss(1, 0.02), micro_batch_size=rng.choice(SIZES), **group)


@pytest.mark.parametrize("seed", range(5))
def test_peaks_lie_in_the_intervals_predicted_for_them(ran, seed):
    trials = list(some_trials(ran, seed, 200))
    outside = 0
    for known in (1, 2, 3, 5, 10, 20, 50):
        model = MemoryModel(trials[:known])
        for trial in trials[known:]:
            found = model.predict(trial.config)
            actual = trial.measurement.peak_memory_bytes
            outside += not found.low_bytes <= actual <= found.high_bytes
    assert outside <= 0.01 * 7 * 200


@pytest.mark.parametrize("seed", range(5))
def test_growth_to_the_border_is_quick_and_rarely_exceeds_it(ran, seed):
    """Requests the largest size for every group in turn; with known peaks nothing fails."""
    rng, trials = random.Random(seed), []
    for group in GROUPS * 3:
        asked = {name: bool(v) if isinstance(v, int) else v for name, v in group.items()}
        model = MemoryModel(trials, fraction=0.85, limit_bytes=24 * GIB)
        wanted = ran(0, micro_batch_size=256, **asked).config
        size = model.largest_worth_trying(wanted, SIZES)
        trials.append(ran(len(trials), rng.gauss(1, 0.02), micro_batch_size=size, **asked))
        assert trials[-1].measurement.peak_memory_bytes <= 24 * GIB
        if len(trials) > 2 * len(GROUPS):
            assert size == max(s for s in SIZES if peak(s, **asked) <= 0.85 * 24)


def test_without_peaks_sizes_grow_by_one_step(make_trial):
    trials, sizes = [], []
    for number in range(6):
        wanted = {"micro_batch_size": 256, "precision": "fp32"}
        size = MemoryModel(trials).largest_worth_trying(wanted, SIZES)
        sizes.append(size)
        failure = {"failure": "oom"} if size > 64 else {}
        trials.append(make_trial(number, 1.0, 0.1, micro_batch_size=size, **failure))
    assert sizes == [4, 8, 16, 32, 64, 128]
    assert MemoryModel(trials).largest_worth_trying(wanted, SIZES) == 64


def test_without_peaks_one_failure_predicts_others(make_trial):
    fitted = make_trial(0, 1.0, 0.1, micro_batch_size=64)
    model = MemoryModel([fitted, make_trial(1, failure="oom", micro_batch_size=128)])
    assert model.largest_worth_trying({"micro_batch_size": 256, "precision": "tf32"}, SIZES) == 64
    assert model.largest_worth_trying({"micro_batch_size": 256, "precision": "bf16"}, SIZES) == 128
    assert model.explain_misfit({"micro_batch_size": 256, "precision": "bf16"}) is None


def test_a_failure_below_fitted_sizes_does_not_limit_other_settings(make_trial):
    """The failed trial's own settings took the memory: larger sizes of other settings fit."""
    fitted = make_trial(0, 1.0, 0.1, micro_batch_size=64)
    odd = make_trial(1, failure="oom", micro_batch_size=64, precision="bf16")
    model = MemoryModel([fitted, odd])
    assert model.largest_worth_trying({"micro_batch_size": 256, "precision": "tf32"}, SIZES) == 128
    assert model.largest_worth_trying({"micro_batch_size": 256, "precision": "bf16"}, SIZES) == 32


def test_a_size_that_has_fitted_is_allowed_whatever_is_predicted(ran):
    trials = [ran(0, micro_batch_size=4), ran(1, micro_batch_size=8), ran(2, micro_batch_size=128)]
    asked = {"micro_batch_size": 128, "precision": "tf32", "learning_rate": 1e-3}
    model = MemoryModel(trials, fraction=0.85)
    assert model.largest_worth_trying(asked, SIZES) == 128
    assert model.explain_misfit(asked) is None


def test_a_workload_without_micro_batches_is_judged_by_failures_alone(make_trial):
    failed = replace(make_trial(0, failure="oom"), config={"width": 64})
    fitted = replace(make_trial(1, 1.0, 0.1, peak=GIB, limit=2 * GIB), config={"width": 32})
    model = MemoryModel([failed, fitted])
    assert model.predict({"width": 32}) is None
    assert model.explain_misfit({"width": 64}) == "needs no less memory than trial 0, which ran out of it"
    assert model.explain_misfit({"width": 32}) is None


def test_a_reduced_size_must_not_be_ruled_out_either(make_trial):
    """The machine ran out of memory with 8 workers, so the size does not count as fitting without workers."""
    failed = make_trial(0, failure="oom", micro_batch_size=16, num_workers=8)
    fitted = make_trial(1, 1.0, 0.1, micro_batch_size=16, num_workers=0)
    asked = {"micro_batch_size": 64, "precision": "fp32", "num_workers": 8}
    assert MemoryModel([failed, fitted]).largest_worth_trying(asked, SIZES) == 8
