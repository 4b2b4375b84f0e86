"""The accumulation that follows the micro-batch to keep the effective batch."""

import random

import pytest

from autotune.core.errors import InputError
from autotune.judging.decisions import pilot
from autotune.space import configurations, distributions, spaces
from autotune.space.machine import Machine, fit_to
from tests.autotune.conftest import SPACE

KEPT = SPACE.replace("{choice: [1, 2, 4]}", "{keep: effective_batch_size}").replace(", 32, 64]", "]")
NESTED = """
workload: some.module:fit
roles: {micro_batch_size: data.batch, accumulation_steps: trainer.accumulate, learning_rate: optim.lr}
baseline: {data: {batch: 8}, trainer: {accumulate: 3}, processes: 2, optim: {lr: 1.0e-3}}
knobs:
  data.batch: {choice: [2, 4, 8, 24]}
  trainer.accumulate: {keep: effective_batch_size}
  processes: {choice: [1, 2, 4]}
  optim.lr: {scale: sqrt}
objective: {minimize: loss}
"""


def read(text):
    return spaces.complete(spaces.parse(text, "test"), "test")


@pytest.fixture
def kept_batch():
    return read(KEPT)


def test_accumulation_follows_the_micro_batch(kept_batch):
    drawn = configurations.drawn_values(kept_batch, kept_batch.baseline_config)
    assert "accumulation_steps" not in drawn, "it is not searched"
    sizes = {
        c["micro_batch_size"]: c["accumulation_steps"]
        for c in configurations.neighbours(kept_batch, kept_batch.baseline_config)
    }
    assert sizes == {16: 1, 8: 2}
    assert configurations.configure(kept_batch, {**drawn, "micro_batch_size": 4})["accumulation_steps"] == 4
    shuffled = configurations.shuffled(kept_batch, random.Random(0))
    assert {kept_batch.effective_batch_size(config) for config in shuffled} == {16}


def test_the_learning_rate_depends_on_its_multiplier_only(kept_batch):
    drawn = configurations.drawn_values(kept_batch, kept_batch.baseline_config)
    for size in (4, 8, 16):
        config = configurations.configure(kept_batch, {**drawn, "micro_batch_size": size})
        assert config["learning_rate"] == 1e-4


def test_kept_accumulation_is_no_sampler_parameter(kept_batch):
    assert "accumulation_steps" not in " ".join(distributions.distributions(kept_batch))
    config = configurations.changed(kept_batch, kept_batch.baseline_config, {"micro_batch_size": 4})
    params = distributions.parameters(config, kept_batch)
    assert distributions.configuration(params, kept_batch) == config
    assert configurations.contains(kept_batch, config)
    assert not configurations.contains(kept_batch, {**config, "accumulation_steps": 2})


def test_kept_accumulation_counts_processes_and_has_the_users_name():
    space = read(NESTED)
    drawn = configurations.drawn_values(space, space.baseline_config)
    config = configurations.configure(space, {**drawn, "micro_batch_size": 4, "processes": 1})
    given = configurations.for_workload(space, space.settings(config))
    assert given["data"] == {"batch": 4}
    assert given["trainer"] == {"accumulate": 12}
    assert spaces.parse(spaces.dump(space), "again") == space
    assert space.violation(config) is None


def test_a_configuration_that_cannot_keep_the_batch_violates_the_limits():
    space = read(NESTED)
    config = configurations.changed(space, space.baseline_config, {"micro_batch_size": 24, "processes": 4})
    assert space.violation(config) == "effective batch 96 is not the baseline's 48, which is kept"
    inside = [c for c in configurations.shuffled(space, random.Random(0)) if space.violation(c) is None]
    assert {space.effective_batch_size(c) for c in inside} == {48}
    assert {c["accumulation_steps"] for c in inside} == {1, 2, 3, 6, 12, 24}


def test_fitting_to_a_machine_keeps_the_rule(kept_batch):
    fitted, dropped = fit_to(kept_batch, Machine(cpus=2))
    assert dropped
    assert fitted.keeps_batch


def test_the_same_training_keeps_the_rule(kept_batch):
    assert pilot.same_training(kept_batch).keeps_batch


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        (
            "[4, 8, 16]",
            "[4, 6, 12, 16]",
            "must be divisors of 16, because accumulation_steps keeps the effective batch of 16, got 6, 12",
        ),
        ("{choice: [4, 8, 16]}", "{randint: [1, 1000000000]}", "effective batch of 16, got 3, 5, 6, 7, 9"),
        ("[8, 128]", "[32, 128]", "limits.effective_batch_size [32, 128] leaves out the baseline's 16"),
        (
            "num_workers:        {choice: [0, 2, 4, 8]}",
            "num_workers: {keep: effective_batch_size}",
            "num_workers: keep: effective_batch_size is only for accumulation_steps",
        ),
        (
            "micro_batch_size:   {choice: [4, 8, 16]}",
            "",
            "needs a knob to follow, and micro_batch_size is none",
        ),
    ],
)
def test_knobs_that_cannot_keep_the_batch_are_refused(old, new, part):
    assert old in KEPT
    with pytest.raises(InputError) as raised:
        read(KEPT.replace(old, new))
    assert part in str(raised.value)
    assert "\n" not in str(raised.value)


def test_each_micro_batch_must_divide_the_batch_with_some_process_count():
    text = NESTED.replace("[2, 4, 8, 24]", "[8, 16, 48]").replace("[1, 2, 4]", "[2, 4]")
    with pytest.raises(
        InputError, match=r"knob data\.batch: must be divisors of 24 or 12, .* of 48, got 16, 48"
    ):
        read(text)


@pytest.mark.parametrize("spec", ["{keep: batch}", "{keep: effective_batch_size, choice: [1]}"])
def test_other_forms_of_the_rule_are_refused(spec):
    with pytest.raises(InputError, match=r"accumulation_steps\."):
        spaces.parse(KEPT.replace("{keep: effective_batch_size}", spec), "test")
