"""What a framework's search space need not say."""

from autotune.space import space as spaces
from autotune.workloads.frameworks.lightning import LIGHTNING

BASELINE = {"trainer": {"precision": "32-true"}, "loader": {"batch_size": 8}, "optimizer": {"lr": 0.1}}
VALUES = {"workload": {"kind": "lightning", "run": "python train.py"}, "baseline": BASELINE}


def test_a_setting_has_its_role_where_the_baseline_has_it():
    found = LIGHTNING.completed(VALUES)
    roles = {
        "precision": "trainer.precision",
        "micro_batch_size": "loader.batch_size",
        "learning_rate": "optimizer.lr",
    }
    assert found["roles"] == roles
    assert found["values"]["precision"]["bf16"] == "bf16-mixed"


def test_what_the_user_says_counts():
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
    assert space.for_workload(space.settings({"precision": "bf16"}))["trainer"] == {"precision": "bf16-mixed"}
