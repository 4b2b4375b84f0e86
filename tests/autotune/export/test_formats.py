"""The text of every format, and its notes on settings that it cannot express."""

import json

import pytest
import yaml

from autotune.core.errors import InputError
from autotune.export import formats
from autotune.export.formats import EVIDENCE
from autotune.workloads import registry
from autotune.workloads.base import Workload

from .conftest import SETTINGS

FUNCTION = Workload("json:loads")
FRAMEWORKS = ("lightning", "transformers")


def written(name, found):
    """Returns the values in a format, without evidence, and the paths of settings that it lacks."""
    made = formats.named(name, found.workload).render(found)
    is_json = formats.FORMATS[name].suffix == "json"
    values = json.loads(made.text) if is_json else yaml.safe_load(made.text)
    evidence = values.pop(EVIDENCE) if is_json else {}
    assert evidence.get("trial", made.text.splitlines()[0].removeprefix("# trial: ")) == "7 of session s"
    assert not is_json or evidence.get("left out", []) == list(made.unsaid)
    return values, [line.split(":")[0] for line in made.unsaid]


def test_the_lightning_file_has_the_trainer_and_lightnings_names(winner):
    trainer = {"max_epochs": 3, "devices": [0, 1]}
    values, unsaid = written("lightning", winner(trainer=trainer, model={"depth": 2}, data=None))
    assert values == {
        "trainer": {
            "accumulate_grad_batches": 2,
            "precision": "bf16-mixed",
            "gradient_clip_val": 1.0,
            "gradient_clip_algorithm": "norm",
            "max_epochs": 3,
            "devices": [0, 1],
        },
        "seed_everything": 3,
        "model": {"depth": 2},
    }
    assert unsaid == [
        *("optim.lr", "optim.betas[0]", "optim.betas[1]", "optim.weight_decay"),
        *("gradient_checkpointing", "compile"),
    ]


def test_the_users_own_trainer_settings_are_written_unchanged(winner):
    roles = {"precision": "trainer.precision"}
    trainer = {"precision": "half", "gradient_clip_val": 0.5, "gradient_clip_algorithm": "value"}
    values, _ = written("lightning", winner(roles=roles, trainer=trainer, amp=None, max_grad_norm=None))
    assert values["trainer"] == trainer


def test_the_transformers_file_has_training_arguments(winner):
    own = Workload("transformers")
    found = winner(workload=own, trainer={"max_steps": 3, "precision": "x"}, warmup_steps=9)
    values, unsaid = written("transformers", found)
    assert values == {
        "output_dir": "trained",
        "per_device_train_batch_size": 32,
        "dataloader_num_workers": 4,
        "gradient_accumulation_steps": 2,
        "learning_rate": 2e-4,
        "weight_decay": 0.1,
        "bf16": True,
        "fp16": False,
        "max_grad_norm": 1.0,
        "gradient_checkpointing": True,
        "torch_compile": False,
        "seed": 3,
        "max_steps": 3,
        "warmup_steps": 9,
    }
    assert unsaid == ["optim.betas[0]", "optim.betas[1]", "trainer.precision"]


def test_another_frameworks_names_are_no_arguments(winner):
    lightnings = {"max_epochs": 3, "gradient_clip_val": 0.5}
    found = winner(workload=Workload("lightning"), trainer=lightnings, max_grad_norm=None)
    values, unsaid = written("transformers", found)
    assert "trainer.max_epochs" in unsaid
    assert (values["max_grad_norm"], "max_epochs" in values) == (0.5, False)
    found = winner(workload=Workload("transformers"), trainer={"num_train_epochs": 3})
    values, unsaid = written("lightning", found)
    assert values["trainer"].keys() == {
        *("accumulate_grad_batches", "precision", "gradient_clip_val", "gradient_clip_algorithm"),
    }
    assert {"trainer.num_train_epochs", "data.batch_size"} <= set(unsaid)


@pytest.mark.parametrize(
    ("amp", "expected"),
    [
        ("no", {"bf16": False, "fp16": False, "tf32": False}),
        ("half", {"bf16": False, "fp16": True}),
        ("tf32", {"bf16": False, "fp16": False, "tf32": True}),
        ("fp8", {}),
    ],
)
def test_transformers_has_three_switches_for_a_precision(winner, amp, expected):
    values, unsaid = written("transformers", winner(amp=amp))
    assert {name: values[name] for name in ("bf16", "fp16", "tf32") if name in values} == expected
    assert ("amp" in unsaid) == (not expected)


def test_worker_settings_are_off_for_transformers_without_workers(winner):
    """Without workers a DataLoader accepts nothing else, and the trial ran like that."""
    own = {"dataloader_prefetch_factor": 2, "dataloader_persistent_workers": True}
    settings = {"num_workers": 0, "prefetch_factor": 2, "persistent_workers": True}
    for found in (winner(data=settings), winner(workload=Workload("transformers"), data=None, trainer=own)):
        values, unsaid = written("transformers", found)
        assert not values.get("dataloader_num_workers")
        assert [values[name] for name in own] == [None, False]
        assert not [path for path in unsaid if "workers" in path or "prefetch" in path]
    values, _ = written("transformers", winner(data={**settings, "num_workers": 2}))
    assert own.items() <= values.items()


def test_only_lightnings_file_has_processes(winner):
    found = winner(processes=4, gpus=4)
    assert written("lightning", found)[0]["trainer"]["devices"] == 4
    assert "processes" in written("transformers", found)[1]


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_no_setting_is_dropped_silently(winner, name):
    """Every setting either changes the file or is reported as left out."""
    other = {"zero_stage": 1, "compile": "default"}
    complete = winner(**other)
    values, unsaid = written(name, complete)
    for setting in complete.every:
        if setting.path not in unsaid and "[" not in setting.path:
            top, _, rest = setting.path.partition(".")
            less = {**complete.settings[top]} if rest else {}
            less.pop(rest, None)
            assert written(name, winner(**{**other, top: less or None}))[0] != values, setting.path


def test_a_partly_expressed_value_is_reported(winner):
    values, unsaid = written("lightning", winner(amp="tf32"))
    assert "amp" in unsaid
    assert "tf32" not in json.dumps(values)


def test_yaml_and_json_are_the_users_own_settings(winner):
    found = winner()
    assert written("yaml", found) == (found.settings, [])
    assert written("json", found) == (found.settings, [])


def test_comments_have_what_a_yaml_file_has_no_place_for(winner):
    text = formats.FORMATS["lightning"].render(winner()).text
    assert "# what this file has no place for:\n#   optim.lr: 0.0002 (of your LightningModule)\n" in text


def test_an_unknown_or_foreign_format_is_one_line(winner):
    with pytest.raises(InputError, match=r"--format: no such format, got 'lightnin', did you mean lightn"):
        formats.named("lightnin", FUNCTION)
    with pytest.raises(InputError, match=r"--format shell: json:loads has no such format, but "):
        formats.named("shell", FUNCTION)
    with pytest.raises(InputError, match=r"--format r2gen: "):
        formats.named("r2gen", FUNCTION)
    nothing = winner(roles={}, **dict.fromkeys(SETTINGS))
    with pytest.raises(InputError, match=r"--format lightning: has a place for none"):
        formats.FORMATS["lightning"].render(nothing)


def test_the_workloads_own_format_is_the_default():
    command = {"kind": "command", "run": "python a.py", "quality": {"a": "(.)"}}
    assert formats.named(None, FUNCTION) is not formats.FORMATS["r2gen"]
    for value, name in (("r2gen", "r2gen"), (command, "shell")):
        workload = registry.load(value)
        assert formats.named(None, workload) is formats.named(name, workload) is formats.FORMATS[name]
