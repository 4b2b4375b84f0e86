"""Every format's text, and what it says of the settings that it has no place for: pure data."""

import json

import pytest
import yaml

from autotune.core.errors import InputError
from autotune.export import formats
from autotune.export.plain import EVIDENCE
from autotune.workloads import registry
from autotune.workloads.base import Workload

FUNCTION = Workload("json:loads")
FRAMEWORKS = ("lightning", "transformers", "accelerate", "deepspeed")


def written(name, found):
    """The values in a format, without the evidence, and the paths of the settings that it does not have."""
    made = formats.named(name, found.workload).render(found)
    is_json = formats.FORMATS[name].suffix == "json"
    values = json.loads(made.text) if is_json else yaml.safe_load(made.text)
    evidence = values.pop(EVIDENCE) if is_json else {}
    assert evidence.get("trial", made.text.splitlines()[0].removeprefix("# trial: ")) == "7 of session s"
    assert not is_json or evidence.get("not said", []) == list(made.unsaid)
    return values, [line.split(":")[0] for line in made.unsaid]


def test_lightnings_is_the_trainer_and_what_has_its_names(winner):
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


def test_what_the_user_says_of_the_trainer_is_written_as_it_is(winner):
    roles = {"precision": "trainer.precision"}
    trainer = {"precision": "half", "gradient_clip_val": 0.5, "gradient_clip_algorithm": "value"}
    values, _ = written("lightning", winner(roles=roles, trainer=trainer, amp=None, max_grad_norm=None))
    assert values["trainer"] == trainer
    values, unsaid = written("deepspeed", winner(roles=roles, trainer=trainer, amp=None, max_grad_norm=None))
    assert values["fp16"] == {"enabled": True}
    assert "gradient_clipping" not in values
    assert "trainer.gradient_clip_val" in unsaid


def test_transformers_is_the_arguments_of_a_training(winner):
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


def test_what_has_another_frameworks_names_is_no_argument(winner):
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


def test_what_goes_with_workers_is_off_for_transformers_where_there_are_none(winner):
    """Their loader is not made with anything else, and a trial had it so."""
    own = {
        f"dataloader_{name}": value for name, value in (("prefetch_factor", 2), ("persistent_workers", True))
    }
    settings = {"num_workers": 0, "prefetch_factor": 2, "persistent_workers": True}
    for found in (winner(data=settings), winner(workload=Workload("transformers"), data=None, trainer=own)):
        values, unsaid = written("transformers", found)
        assert not values.get("dataloader_num_workers")
        assert (values["dataloader_prefetch_factor"], values["dataloader_persistent_workers"]) == (
            None,
            False,
        )
        assert not [path for path in unsaid if "workers" in path or "prefetch" in path]
    values, _ = written("transformers", winner(data={**settings, "num_workers": 2}))
    assert (values["dataloader_prefetch_factor"], values["dataloader_persistent_workers"]) == (2, True)


def test_accelerates_is_a_machine_and_its_precision(winner):
    values, unsaid = written("accelerate", winner(compile="reduce-overhead", gpus=2))
    assert values == {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "MULTI_GPU",
        "num_machines": 1,
        "machine_rank": 0,
        "num_processes": 2,
        "use_cpu": False,
        "mixed_precision": "bf16",
        "dynamo_config": {"dynamo_backend": "INDUCTOR", "dynamo_mode": "reduce-overhead"},
    }
    assert {"data.batch_size", "accumulate", "max_grad_norm"} <= set(unsaid)


def test_accelerates_has_deepspeeds_settings_where_zero_is_one_of_them(winner):
    values, unsaid = written("accelerate", winner(zero_stage=3, offload_optimizer="cpu", gpus=1))
    assert values["distributed_type"] == "DEEPSPEED"
    assert values["deepspeed_config"] == {
        "gradient_accumulation_steps": 2,
        "gradient_clipping": 1.0,
        "zero_stage": 3,
        "zero3_init_flag": True,
        "offload_optimizer_device": "cpu",
    }
    assert not {"accumulate", "max_grad_norm"} & set(unsaid)


def test_processes_are_the_launchers(winner):
    found = winner(processes=4, gpus=4)
    assert written("accelerate", found)[0]["num_processes"] == 4
    assert written("accelerate", found)[0]["distributed_type"] == "MULTI_GPU"
    assert written("accelerate", winner(processes=2))[0]["distributed_type"] == "MULTI_CPU"
    assert written("lightning", found)[0]["trainer"]["devices"] == 4
    values, unsaid = written("accelerate", winner(trainer={"devices": "auto"}, gpus=2))
    assert (values["num_processes"], "trainer.devices" in unsaid) == (2, True)
    for name in ("transformers", "deepspeed"):
        assert "processes" in written(name, found)[1]


def test_deepspeeds_has_one_place_for_precision(winner):
    found = winner(zero_stage=2, offload={"optimizer": "x"}, offload_optimizer="off")
    values, unsaid = written("deepspeed", found)
    assert values == {
        "train_micro_batch_size_per_gpu": 32,
        "gradient_accumulation_steps": 2,
        "bf16": {"enabled": True},
        "fp16": {"enabled": False},
        "gradient_clipping": 1.0,
        "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "none"}},
    }
    assert unsaid == [
        *("data.num_workers", "optim.lr", "optim.betas[0]", "optim.betas[1]", "optim.weight_decay"),
        *("gradient_checkpointing", "compile", "seed", "offload.optimizer"),
    ]


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_no_setting_is_dropped_without_a_word(winner, name):
    """A setting that is not told to be left out changes the file."""
    other = {"zero_stage": 1, "compile": "default"}
    base = winner(**other)
    whole, unsaid = written(name, base)
    for given in base.every:
        if given.path not in unsaid and "[" not in given.path:
            top, _, rest = given.path.partition(".")
            less = {**base.settings[top]} if rest else {}
            less.pop(rest, None)
            assert written(name, winner(**{**other, top: less or None}))[0] != whole, given.path


def test_a_value_that_is_said_in_part_is_told_as_well(winner):
    for name in ("lightning", "accelerate", "deepspeed"):
        values, unsaid = written(name, winner(amp="tf32"))
        assert "amp" in unsaid
        assert "tf32" not in json.dumps(values)


def test_yaml_and_json_are_the_users_own_settings(winner):
    found = winner()
    assert written("yaml", found) == (found.settings, [])
    assert written("json", found) == (found.settings, [])


def test_comments_have_what_a_yaml_file_has_no_place_for(winner):
    text = formats.FORMATS["lightning"].render(winner()).text
    assert "# what this file has no place for:\n#   optim.lr: 0.0002 (of your LightningModule)\n" in text


def test_a_format_that_is_none_or_another_workloads_is_one_line(winner):
    with pytest.raises(
        InputError, match=r"--format: no such format: got 'lightnin': did you mean lightning\?"
    ):
        formats.named("lightnin", FUNCTION)
    with pytest.raises(
        InputError, match=r"--format shell: the workload json:loads has no such file, but light"
    ):
        formats.named("shell", FUNCTION)
    with pytest.raises(InputError, match=r"--format r2gen: "):
        formats.named("r2gen", FUNCTION)
    nothing = winner(
        roles={}, data=None, accumulate=None, optim=None, max_grad_norm=None, seed=None, amp=None
    )
    with pytest.raises(InputError, match=r"--format deepspeed: none of the settings"):
        formats.FORMATS["deepspeed"].render(nothing)


def test_the_workloads_own_format_is_the_default():
    command = {"kind": "command", "run": "python a.py", "quality": {"a": "(.)"}}
    assert formats.named(None, FUNCTION) is not formats.FORMATS["r2gen"]
    for value, name in (("r2gen", "r2gen"), (command, "shell")):
        workload = registry.load(value)
        assert formats.named(None, workload) is formats.named(name, workload) is formats.FORMATS[name]
