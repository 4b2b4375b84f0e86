from dataclasses import replace

import pytest

from autotune.core.trial import RejectedFor
from autotune.judging.decisions import stopping
from autotune.judging.decisions.history import History
from autotune.searcher import heuristics
from autotune.searcher.sampler import Refusal
from autotune.searcher.screening import Screening
from autotune.space.knobs import KeptBatch

GIB = 2**30
CONFIG = {
    "micro_batch_size": 16,
    "accumulation_steps": 1,
    "precision": "fp32",
    "num_workers": 2,
    "learning_rate": 1e-4,
}


@pytest.fixture
def screen(space):
    def make(*trials, limit=None):
        history = History(trials, space)
        return Screening(history, stopping.threshold(history), limit)

    return make


def trial(make_trial, number, speed, quality=0.2, **changes):
    short = make_trial(number, speed, quality, half_width=speed / 100, **(CONFIG | changes))
    throughput = replace(short.measurement.throughput, steps=100)
    return replace(short, measurement=replace(short.measurement, throughput=throughput))


def test_a_new_configuration_is_accepted_unchanged(screen, make_trial):
    new = CONFIG | {"precision": "bf16"}
    assert screen(trial(make_trial, 0, 10.0))(new) == new


def test_a_reduced_micro_batch_keeps_the_effective_batch(screen, space, make_trial):
    """A configuration 32x1 that does not fit becomes 16x2, not 16x1."""
    best = trial(make_trial, 0, 10.0, micro_batch_size=8, accumulation_steps=4, peak=3 * GIB)
    first = next(heuristics.larger_batches(best, History([best], space)))
    assert (first["micro_batch_size"], first["accumulation_steps"]) == (32, 1)
    run = screen(best, limit=8 * GIB)(first)
    assert (run["micro_batch_size"], run["accumulation_steps"]) == (16, 2)
    assert run["learning_rate"] == best.config["learning_rate"]


def test_a_tried_configuration_is_refused_without_feedback(screen, make_trial):
    refusal = screen(trial(make_trial, 0, 10.0))(CONFIG)
    assert isinstance(refusal, Refusal)
    assert (refusal.kind, refusal.feedback) == (RejectedFor.TRIED, None)


def test_a_configuration_of_an_ablation_step_may_be_tried(screen, make_trial):
    step = replace(trial(make_trial, 1, 50.0, precision="bf16"), ablation_of=0)
    assert screen(trial(make_trial, 0, 10.0), step)(step.config) == step.config
    slow = replace(trial(make_trial, 1, 5.0, precision="bf16"), ablation_of=0)
    assert "by equal settings, " in screen(trial(make_trial, 0, 10.0), slow)(slow.config).reason


def test_a_configuration_outside_the_limits_is_refused(screen, make_trial):
    refusal = screen(trial(make_trial, 0, 10.0))(CONFIG | {"micro_batch_size": 4})
    assert refusal.kind is RejectedFor.LIMITS
    assert "effective batch 4" in refusal.reason
    assert refusal.feedback.violation == 1.0


def test_settings_as_fast_as_the_fastest_cannot_win(screen, make_trial):
    fast = trial(make_trial, 1, 50.0, precision="bf16")
    refusal = screen(trial(make_trial, 0, 10.0), fast)(fast.config | {"learning_rate": 2e-4})
    assert refusal.kind is RejectedFor.SPEED
    assert "as fast as trial 1" in refusal.reason


def test_a_configuration_known_to_be_slower_is_refused(screen, make_trial):
    fast = trial(make_trial, 1, 50.0, precision="bf16")
    slow = trial(make_trial, 2, 20.0, num_workers=4)
    refusal = screen(trial(make_trial, 0, 10.0), fast, slow)(slow.config | {"learning_rate": 2e-4})
    assert "by equal settings, " in refusal.reason
    assert refusal.feedback.values == (20.0,)
    assert refusal.feedback.violation == 0.0


def test_another_learning_rate_of_the_baseline_may_win_by_its_quality(screen, make_trial):
    other = CONFIG | {"learning_rate": 2e-4}
    assert screen(trial(make_trial, 0, 10.0))(other) == other


def test_equally_fast_settings_are_refused_if_only_speed_counts(space, make_trial):
    speeds = ((10.0, {}), (50.0, {"precision": "bf16"}), (49.0, {"num_workers": 4}))
    trials = [trial(make_trial, number, speed, **knobs) for number, (speed, knobs) in enumerate(speeds)]
    history = History(trials, space.revised(objective={"keep": 0.0}))
    for like in trials:
        other = like.config | {"learning_rate": 2e-4}
        refusal = Screening(history, stopping.threshold(history), None)(other)
        assert f"is as fast as trial {like.number}" in refusal.reason
        assert refusal.feedback.values == (like.samples_per_s,)


def test_a_doubtful_size_runs_with_a_smaller_batch(screen, make_trial):
    known = trial(make_trial, 0, 10.0, peak=3 * GIB, limit=8 * GIB)
    config = screen(known, limit=8 * GIB)(CONFIG | {"micro_batch_size": 64, "precision": "bf16"})
    assert not isinstance(config, Refusal)
    assert config["micro_batch_size"] < 64
    assert config["precision"] == "bf16"


def test_a_smaller_batch_counts_with_the_accumulation_that_follows_it(space, make_trial):
    kept = {**space.knobs, "accumulation_steps": KeptBatch(keep="effective_batch_size")}
    fitted = trial(make_trial, 0, 10.0, peak=9 * GIB, limit=10 * GIB)
    smaller = CONFIG | {"micro_batch_size": 4, "accumulation_steps": 4}
    failed = make_trial(1, failure="oom", limit=10 * GIB, **smaller)
    history = History([fitted, failed], space.model_copy(update={"knobs": kept}))
    refusal = Screening(history, stopping.threshold(history), 10 * GIB)(CONFIG | {"num_workers": 4})
    assert refusal.kind is RejectedFor.MEMORY
    assert "needs no less memory than trial 1" in refusal.reason


def test_a_configuration_that_needs_no_less_than_a_failed_one_is_refused(screen, make_trial):
    failed = make_trial(1, failure="oom", **(CONFIG | {"micro_batch_size": 32}))
    refusal = screen(trial(make_trial, 0, 10.0), failed)(CONFIG | {"micro_batch_size": 64})
    assert "ran out of it" in refusal.reason
