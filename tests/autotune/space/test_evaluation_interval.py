"""The evaluation interval of the user's own training."""

import pytest

from autotune.core.errors import InputError
from autotune.space import configurations, spaces
from autotune.space.sections import Training

COMMON = """
roles: {micro_batch_size: batch}
baseline: {batch: 8, lr: 0.1, eval_interval: 250, every: 5000}
"""


def made_of(rest, knobs="batch: {choice: [8, 32]}"):
    text = f"workload: json:loads\n{COMMON}knobs:\n  {knobs}\n{rest}"
    return spaces.complete(spaces.parse(text, "test"), "test")


def test_an_interval_in_steps_is_rescaled_to_the_effective_batch():
    space = made_of("evaluate_every: eval_interval")
    for batch, steps in ((8, 250), (32, 62)):
        config = {"micro_batch_size": batch}
        assert space.samples_per_evaluation(config) == 2000, "the same number of samples"
        assert configurations.for_workload(space, space.settings(config))["eval_interval"] == steps


def test_samples_per_evaluation_of_the_training_is_the_fallback():
    assert made_of("").samples_per_evaluation({}) is None
    space = made_of("training: {samples: 90000, samples_per_evaluation: 300}")
    assert space.samples_per_evaluation({}) == 300


def test_r2gen_evaluates_by_its_setting_or_once_per_epoch(space_of_r2gen):
    by_samples = space_of_r2gen(eval_every_samples=700)
    assert by_samples.samples_per_evaluation({}) == 700
    by_epoch = space_of_r2gen(eval_every_samples=None, training={"samples_per_epoch": 480})
    assert by_epoch.samples_per_evaluation({}) == 480
    assert space_of_r2gen(eval_every_samples=None).samples_per_evaluation({}) is None


@pytest.fixture
def space_of_r2gen(space):
    def make(training=None, **settings):
        baseline = {**space.baseline, **settings}
        return space.model_copy(update={"baseline": baseline, "training": Training(**(training or {}))})

    return make


def test_the_interval_can_be_a_knob_with_speed_wall():
    knob = "eval_interval: {choice: [250, 500], moves: [speed]}"
    space = made_of("evaluate_every: eval_interval\nobjective: {speed: wall}", knobs=knob)
    assert [space.samples_per_evaluation({"eval_interval": steps}) for steps in (250, 500)] == [2000, 4000]
    trial = configurations.for_trial(space, space.settings({"eval_interval": 500}))
    assert trial["eval_interval"] == 625, "the budget decides how often a trial is evaluated"


@pytest.mark.parametrize(
    ("rest", "knobs", "message"),
    [
        (
            "evaluate_every: eval_interval",
            "eval_interval: {choice: [250, 500]}",
            "knob eval_interval: the evaluation interval counts only with objective.speed: wall",
        ),
        (
            "evaluate_every: eval_interval\nobjective: {speed: wall}",
            "eval_interval: {uniform: [100.0, 300.0]}",
            "knob eval_interval: must be whole numbers of steps, got [100.0, 300.0]",
        ),
        (
            "objective: {speed: wall}\nbudget: {evaluations_per_trial: 1}",
            "batch: {choice: [8, 32]}",
            "objective.speed: wall needs budget.evaluations_per_trial of 2 or more, got 1",
        ),
        ("training: {samples: 0}", "batch: {choice: [8, 32]}", "training.samples"),
    ],
)
def test_each_mistake_is_one_line(rest, knobs, message):
    with pytest.raises(InputError, match="search space test: ") as error:
        made_of(rest, knobs=knobs)
    assert message in str(error.value)
