"""Settings that a framework's search space may leave out."""

import pytest

from autotune.core.settings import MemoryEffect, Result
from autotune.space import configurations, spaces
from autotune.workloads.frameworks.lightning import LIGHTNING

BASELINE = {"trainer": {"precision": "32-true"}, "loader": {"batch_size": 8}, "optimizer": {"lr": 0.1}}
VALUES = {"workload": {"kind": "lightning", "run": "python train.py"}, "baseline": BASELINE}


def test_a_setting_has_its_role_if_it_is_in_the_baseline():
    found = LIGHTNING.completed(VALUES)
    roles = {
        "precision": "trainer.precision",
        "micro_batch_size": "loader.batch_size",
        "learning_rate": "optimizer.lr",
    }
    assert found["roles"] == roles
    assert found["values"]["precision"]["bf16"] == "bf16-mixed"
    dotted = {"trainer.precision": "32-true", "loader": {"batch_size": 8}, "optimizer.lr": 0.1}
    assert LIGHTNING.completed({**VALUES, "baseline": dotted})["roles"] == roles


def test_the_users_values_take_precedence():
    said = {"micro_batch_size": "data.size", "weight_decay": "optimizer.lr"}
    found = LIGHTNING.completed({**VALUES, "roles": said, "values": {"precision": {"bf16": "bf16-true"}}})
    assert found["roles"] == {**said, "precision": "trainer.precision"}
    assert found["values"] == {"precision": {"bf16": "bf16-true"}}
    flat = {**VALUES, "baseline": {**BASELINE, "precision": "bf16"}}
    assert "precision" not in LIGHTNING.completed(flat)["roles"]


def test_a_search_space_comes_back_as_it_was_read():
    knobs = {
        "loader.batch_size": {"choice": [8, 16]},
        "trainer.precision": {"choice": ["32-true", "bf16-mixed"]},
    }
    space = spaces.from_values({**VALUES, "knobs": knobs, "objective": {"minimize": "val_loss"}}, "here")
    assert space.baseline["micro_batch_size"] == 8
    assert space.knobs["precision"].choice == ("fp32", "bf16")
    assert spaces.parse(spaces.dump(space), "there") == space
    assert configurations.for_workload(space, space.settings({"precision": "bf16"}))["trainer"] == {
        "precision": "bf16-mixed"
    }


@pytest.mark.parametrize("word", ["32-true", "32", 32])
def test_a_precision_is_known_in_each_of_its_spellings(word):
    baseline = {**BASELINE, "trainer": {"precision": word}}
    knobs = {"trainer.precision": {"choice": [word, "bf16"]}}
    values = {**VALUES, "baseline": baseline, "knobs": knobs, "objective": {"minimize": "val_loss"}}
    space = spaces.from_values(values, "here")
    assert space.baseline["precision"] == "fp32"
    assert space.knobs["precision"].choice == ("fp32", "bf16")
    assert [
        configurations.for_workload(space, space.settings({"precision": p}))["trainer"]["precision"]
        for p in space.knobs["precision"].choice
    ] == [word, "bf16"]


@pytest.mark.parametrize(
    ("micro_batch", "accumulation", "batches"), [(8, 1, 25), (8, 2, 26), (16, 4, 16), (512, 1, 1)]
)
def test_a_trial_of_lightning_has_its_validations_after_whole_steps(micro_batch, accumulation, batches):
    settings = {"micro_batch_size": micro_batch, "accumulation_steps": accumulation}
    found = LIGHTNING.for_trial(settings, 1000, 5)
    assert found == {"trainer.val_check_interval": batches, "trainer.check_val_every_n_epoch": None}
    assert 5 * batches * micro_batch >= 1000  # the last evaluation is not before the end


def test_with_an_unknown_batch_the_script_keeps_its_own_schedule():
    assert LIGHTNING.for_trial({"loader.num_workers": 2}, 1000, 5) == {}


def test_lightning_settings_outside_of_steps_do_not_affect_memory():
    known = {one.name: one for one in LIGHTNING.known}
    for name in ("trainer.log_every_n_steps", "trainer.detect_anomaly", "trainer.val_check_interval"):
        assert (known[name].moves_memory, known[name].moves_result) == (MemoryEffect.NOT, Result.EQUAL)
    assert not known["trainer.gradient_clip_val"].moves_speed
