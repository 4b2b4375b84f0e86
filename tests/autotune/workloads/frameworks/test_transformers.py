"""Settings that a search space for Transformers or Accelerate may leave out, and a trial's additions."""

import pytest

from autotune.space import configurations, spaces
from autotune.workloads.frameworks.transformers import TRANSFORMERS
from autotune.workloads.registry import known_settings

WORKLOAD = {"kind": "transformers", "run": "python train.py"}
TRAINER = {"trainer": {"per_device_train_batch_size": 8, "precision": "fp32", "seed": 1}}
ACCELERATE = {"loader": {"batch_size": 8}, "accelerator": {"mixed_precision": "no"}, "optimizer": {"lr": 0.1}}
KNOBS = {"micro_batch_size": {"choice": [8, 16]}}


@pytest.mark.parametrize(
    ("baseline", "roles"),
    [
        (
            TRAINER,
            {
                "micro_batch_size": "trainer.per_device_train_batch_size",
                "precision": "trainer.precision",
                "seed": "trainer.seed",
            },
        ),
        (
            ACCELERATE,
            {
                "micro_batch_size": "loader.batch_size",
                "precision": "accelerator.mixed_precision",
                "learning_rate": "optimizer.lr",
            },
        ),
        (
            {"trainer": {"activation_checkpointing": True}},
            {"activation_checkpointing": "trainer.activation_checkpointing"},
        ),
    ],
)
def test_a_setting_has_its_role_by_whichever_path_the_baseline_has(baseline, roles):
    assert TRANSFORMERS.completed({"workload": WORKLOAD, "baseline": baseline})["roles"] == roles


@pytest.mark.parametrize("baseline", [TRAINER, ACCELERATE])
def test_no_mixed_precision_is_fp32_whatever_it_is_called(baseline):
    space = spaces.from_values({"workload": WORKLOAD, "baseline": baseline, "knobs": KNOBS}, "here")
    assert space.baseline["precision"] == "fp32"
    assert configurations.for_workload(space, space.settings({})) == baseline


def test_a_trial_evaluates_by_samples_and_the_export_as_the_user_configured():
    knobs = {"trainer.per_device_train_batch_size": {"choice": [8, 16]}}
    baseline = {"trainer": {**TRAINER["trainer"], "eval_steps": 500}}
    space = spaces.from_values({"workload": WORKLOAD, "baseline": baseline, "knobs": knobs}, "here")
    settings = space.settings({})
    given = configurations.for_trial(space, {**settings, **TRANSFORMERS.for_trial(settings, 1001, 5)})
    assert given["in_trial"] == {"evaluate_every": 201}
    assert given["trainer"]["eval_steps"] == 500
    assert configurations.for_workload(space, settings) == baseline


def test_settings_that_move_no_memory_make_no_group_of_their_own():
    known = known_settings("transformers")
    assert {"trainer.max_grad_norm", "trainer.logging_steps"} <= {
        name for name in known.by_name if known[name].moves_memory == "no"
    }
    assert "trainer.warmup_steps" in known.same_speed
    assert "trainer.dataloader_pin_memory" in known.same_quality
    assert "trainer.optim" not in known.same_speed | known.same_quality
