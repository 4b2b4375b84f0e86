"""Schedules, inferred from the learning rates of trials."""

from dataclasses import replace

import pytest

from autotune.core.measurement import Schedule
from autotune.judging.accounts import schedules
from autotune.judging.decisions.history import History


@pytest.fixture
def run(make_trial, planned):
    def make(number, length, schedule):
        trial = make_trial(number, 300.0, curve=[-1.9], half_width=1.0)
        config = {**planned.baseline_config, "length": length}
        return replace(trial, config=config, measurement=replace(trial.measurement, schedule=schedule))

    return make


def test_a_schedule_that_ends_with_a_shorter_training_follows_the_length(run, planned):
    whole = run(0, 20_000, Schedule(1e-3, 1e-4, 20_000))
    assert schedules.describe(History([whole], planned)) is None, "one length decides nothing"
    half = run(1, 10_000, Schedule(1e-3, 1e-4, 10_000))
    assert schedules.describe(History([whole, half], planned)) == (
        "The learning rate falls from 0.001 to 0.0001, also in a shorter training: its schedule follows the "
        "length."
    )


def test_a_schedule_that_moves_once_an_epoch_ends_an_epoch_early(run, planned):
    """Cosines over eight and over four epochs."""
    whole = run(0, 20_000, Schedule(0.05, 0.0019, 17_500))
    half = run(1, 10_000, Schedule(0.05, 0.0073, 7_500))
    assert schedules.describe(History([whole, half], planned)).endswith("its schedule follows the length.")


def test_a_cut_schedule_is_reported_with_advice(run, planned):
    whole, half = run(0, 20_000, Schedule(1e-3, 1e-4, 20_000)), run(1, 10_000, Schedule(1e-3, 6e-4, 10_000))
    text = schedules.describe(History([whole, half], planned))
    assert "in a shorter training only to 0.0006: its schedule does not follow the length." in text


@pytest.mark.parametrize("schedule", [None, Schedule(1e-3, 1e-3, 100)])
def test_a_constant_or_unknown_rate_is_not_mentioned(run, planned, schedule):
    assert schedules.describe(History([run(0, 20_000, schedule)], planned)) is None


def test_without_a_length_knob_the_settings_to_add_are_named(run, planned):
    knobs = {name: knob for name, knob in planned.knobs.items() if name != "length"}
    cut = planned.model_copy(update={"knobs": knobs})
    text = schedules.describe(History([run(0, 20_000, Schedule(1e-3, 2e-4, 20_000))], cut))
    assert text.endswith("Add to the knobs, for example: length: {steps: [max_iters, warmup_iters]}")
