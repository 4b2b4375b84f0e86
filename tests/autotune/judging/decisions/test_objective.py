"""Rules for single trials: memory, target, constraints."""

from dataclasses import replace

import pytest

from autotune.judging.decisions import objective
from autotune.judging.decisions.history import History
from autotune.judging.measurement import curves
from autotune.space.sections import Objective


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({}, None),
        ({"chance": 0.1}, None),
        ({"chance": 0.2}, "its quality 0.2000 is not above chance (0.2000)"),
        ({"chance": 0.3}, "its quality 0.2000 is not above chance (0.3000)"),
        ({"collapsed": True}, "it gives the same answer to every input"),
    ],
)
def test_a_quality_at_chance_or_of_a_collapsed_model_is_rejected(make_trial, fields, why):
    trial = make_trial(1, 90, curve=[0.1, 0.2], half_width=1.0, micro_batch_size=32, **fields)
    assert objective.no_quality(trial.measurement) == why


def test_without_an_evaluation_chance_is_not_judged(make_trial):
    assert objective.no_quality(make_trial(1, 10, 0.1).measurement) is None


@pytest.mark.parametrize(
    ("constraint", "found", "why"),
    [
        (">= 0.2", 0.2, None),
        (">= 0.2", 0.19, "rouge_l is 0.19, and must be >= 0.2"),
        ("<= 0.2", 0.2, None),
        ("<= 0.2", 0.21, "rouge_l is 0.21, and must be <= 0.2"),
    ],
)
def test_a_constraint_bounds_a_score(make_trial, constraint, found, why):
    goal = Objective(constraints={"rouge_l": constraint})
    trial = make_trial(1, 90, curve=[0.2], half_width=1.0, scores={"rouge_l": found})
    assert objective.broken_constraint(trial.measurement, goal) == why


def test_a_missing_score_breaks_its_constraint(make_trial):
    goal = Objective(constraints={"cider": ">= 0"})
    found = objective.broken_constraint(make_trial(1, 90, 0.2).measurement, goal)
    assert found == "no evaluation has cider, which must be >= 0"


@pytest.mark.parametrize(
    ("changes", "alike"),
    [
        ({}, True),
        ({"num_workers": 8, "precision": "bf16", "compile": True}, True),
        ({"micro_batch_size": 8, "accumulation_steps": 4}, True),
        ({"micro_batch_size": 8}, False),
        ({"accumulation_steps": 4}, False),
        ({"learning_rate": 1.0001e-4}, True),
        ({"learning_rate": 1.01e-4}, False),
        ({"dropout": 0.2}, False),
        ({"dropout": None}, False),
        ({"dropout": 0.1, "label_smoothing": 0.1}, False),
    ],
)
def test_trainings_are_alike_if_batch_rate_and_result_settings_are_equal(changes, alike):
    config = {"micro_batch_size": 16, "accumulation_steps": 2, "learning_rate": 1e-4, "dropout": 0.1}
    assert objective.trains_alike(config | changes, config) is alike


def test_a_trial_ended_for_its_speed_has_no_final_quality(make_trial, space):
    """Compared with that of a complete trial, its last quality would seem lost."""
    alone = space.revised(objective={"select": "same-training"})
    whole, part = (
        replace(trial, measurement=replace(trial.measurement, quality_samples=samples))
        for trial, samples in ((make_trial(0, 10.0, 0.2), 20_000), (make_trial(1, 20.0, 0.01), 5_000))
    )
    assert [objective.final_quality(t, alone) for t in (whole, part)] == [0.2, None]
    assert [objective.final_quality(t, space) for t in (whole, part)] == [0.2, 0.01]
    assert History([whole, part], alone).keeps_quality(part) is None


KEPT = {"a share": Objective(keep=0.95), "a slack": Objective(within=0.1), "any": Objective(keep=0)}


@pytest.mark.parametrize("reference", [2.0, -2.0])
def test_the_least_quality_and_the_least_share_agree(reference):
    """Inside the tuner, a loss is negative."""
    kept = [objective.least(goal, reference) for goal in KEPT.values()]
    assert kept == pytest.approx([reference - 0.1, reference - 0.1, reference - 2])
    for goal in KEPT.values():
        share = curves.share(objective.least(goal, reference), reference)
        assert objective.least_share(goal, reference) == pytest.approx(share)
    assert objective.least_share(KEPT["a slack"], 0.0) == 0.0, "nothing was gained"


def test_a_loss_at_chance_is_reported_in_the_users_sign(make_trial):
    goal = Objective(minimize="val_loss")
    trial = make_trial(1, 90, curve=[-2.4, -2.3], chance=-2.2)
    found = objective.no_quality(trial.measurement, goal)
    assert found == "its quality 2.3000 is not below chance (2.2000)"


@pytest.mark.parametrize(
    ("fields", "curve", "start"),
    [
        ({}, [0.1, 0.2], None),  # a score begins at 0
        ({"chance": 0.05}, [0.1, 0.2], 0.05),
        ({}, [-4.0, -3.0, -2.0], -4.0),
        ({}, [-2.0], None),
        ({"chance": -9.0}, [-4.0, -3.0, -2.0], -9.0),
    ],
)
def test_the_start_is_chance_or_the_first_loss(make_trial, fields, curve, start):
    trial = make_trial(0, 10, curve=curve, **fields)
    assert objective.start(trial) == start
    evaluated = replace(trial, measurement=replace(trial.measurement, start=0.01))
    assert objective.start(evaluated) == 0.01, "an evaluation before the first step is preferred"


def test_the_share_of_a_loss_is_relative_to_its_fall():
    """A loss that fell from 4 to 2 may be 2.04 at a share of 0.98; if the start is unknown, the gain is 2."""
    goal = Objective(quality="loss", minimize="loss", keep=0.98)
    assert objective.least(goal, -2.0, -4.0) == pytest.approx(-2.04)
    assert objective.least(goal, -9.13, -9.5) == pytest.approx(-9.1374)
    assert objective.least(goal, -2.0) == pytest.approx(-2.04)
    slack = Objective(quality="loss", minimize="loss", within=0.1, keep=None)
    assert objective.least(slack, -2.0, -4.0) == pytest.approx(-2.1)
    assert objective.least_share(slack, -2.0, -4.0) == pytest.approx(0.95)
