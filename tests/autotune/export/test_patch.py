"""The winner's values in the user's own file."""

import json
from pathlib import Path

import pytest
import yaml

from autotune.core.errors import InputError
from autotune.export import patch
from autotune.workloads.base import Workload
from autotune.workloads.command.workload import CommandWorkload
from autotune.workloads.in_place import Document

OWN = """\
# ours
data: {batch_size: 16}  # per GPU
trainer:
  precision: 32-true   # slow
model: {lr: 1.0e-4}
"""
YAML, JSON = Path("own.yaml"), Path("ds.json")


def patched(text, file, winner):
    found = patch.patch(Document(file, text), winner)
    return found, (json.loads if file is JSON else yaml.safe_load)(found.text)


def test_a_value_goes_to_its_path_or_to_a_common_name(winner):
    found, values = patched(OWN, YAML, winner())
    assert values == {
        "data": {"batch_size": 32},
        "trainer": {"precision": "bf16-mixed"},
        "model": {"lr": 2e-4},
    }
    evidence = "# trial: 7 of session s\n# measured: 2.00x\n# hardware: a GPU seed: 9\n"
    assert found.text.startswith(f"{evidence}# ours\n")
    changed = OWN.replace("16}", "32}").replace("32-true", "bf16-mixed").replace("1.0e-4", "0.0002")
    assert found.text.endswith(changed)
    assert found.replaced == (
        "data.batch_size: 16 -> 32",
        "model.lr: 0.0001 -> 0.0002",
        "trainer.precision: 32-true -> bf16-mixed",
    )
    assert found.left_out == ()


def test_the_evidence_comes_behind_a_byte_order_mark(winner):
    found, values = patched(f"\ufeff{OWN}", YAML, winner())
    assert found.text.startswith("\ufeff# trial: 7 ")
    assert values["data"] == {"batch_size": 32}


def test_the_evidence_comes_behind_the_line_that_starts_a_script(winner):
    script = Document(Path("a.py"), "#!/usr/bin/env python\n# Trains.\nlearning_rate = 1\n")
    first, *rest = patch.patch(script, winner()).text.splitlines()
    assert first == "#!/usr/bin/env python"
    assert rest[0].startswith("# ")
    assert rest[-2] == "# Trains."


def test_a_name_may_have_dots_in_it(winner):
    _, values = patched("data.batch_size: 16\n", YAML, winner())
    assert values == {"data.batch_size": 32}


def test_settings_that_were_not_searched_stay(winner):
    _, values = patched(f"{OWN}seed: 1\n", YAML, winner())
    assert values["seed"] == 1


def test_settings_with_no_place_or_several_are_reported(winner):
    found, values = patched("a: {lr: 1}\nb: {lr: 2}\nbatch_size: 4\n", YAML, winner())
    assert values == {"a": {"lr": 1}, "b": {"lr": 2}, "batch_size": 32}
    assert found.left_out == ("optim.lr: 0.0002: could be any of a.lr, b.lr", "amp: brain: not found")


def test_two_settings_do_not_get_one_place(winner):
    found = winner(generator={"lr": 5.0}, searched=("optim.lr", "generator.lr"))
    made, values = patched("learning_rate: 1.0\n", YAML, found)
    assert values == {"learning_rate": 2e-4}
    assert made.left_out == ("generator.lr: 5.0: not found",)


def test_a_file_with_none_of_them_is_refused(winner):
    with pytest.raises(InputError, match=r"^has no place for any of: data\.batch_size: 32: "):
        patch.patch(Document(YAML, "epochs: 3\n"), winner())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"bf16": {"enabled": false}, "fp16": {"enabled": true}}', {"bf16": True, "fp16": False}),
        ('{"fp16": {"enabled": "auto"}}', {"fp16": False, "bf16": True}),
    ],
)
def test_at_most_one_deepspeed_switch_is_on(winner, text, expected):
    _, values = patched(text, JSON, winner())
    assert {name: value["enabled"] for name, value in values.items()} == expected


@pytest.mark.parametrize(
    ("key", "old", "amp", "new"),
    [
        ("mixed_precision", "no", "half", "fp16"),
        ("torch_dtype", "float32", "brain", "bfloat16"),
        ("precision", "brain", "half", "half"),
        ("amp", "brain", "half", "half"),
        ("fp16", False, "half", True),
        ("precision", 32, "half", "16-mixed"),
        ("precision", "16", "brain", "bf16-mixed"),
        ("precision", "bf16", "half", "16-mixed"),
        ("precision", "fp32", "half", "half"),
        ("torch_dtype", "auto", "brain", "bfloat16"),
    ],
)
def test_a_precision_has_the_files_spelling(winner, key, old, amp, new):
    _, values = patched(json.dumps({key: old}), JSON, winner(amp=amp))
    assert values[key] == new


@pytest.mark.parametrize(
    ("old", "new"), [("32-true", "16-mixed"), (32, "16-mixed"), ("bf16", "fp16"), ("fp32", "fp16")]
)
def test_at_its_own_path_a_precision_has_the_trials_spelling(winner, old, new):
    """Unless the file's value cannot be one of the user's words."""
    found = winner(roles={}, amp=None, precision="fp16", searched=("precision",))
    assert patched(json.dumps({"precision": old}), JSON, found)[1] == {"precision": new}


def test_a_precision_of_half_the_width_leaves_tf32_as_it_is(winner):
    text = '{"bf16": false, "fp16": true, "tf32": true}'
    assert patched(text, JSON, winner())[1] == {"bf16": True, "fp16": False, "tf32": True}
    assert patched(text, JSON, winner(amp="no"))[1] == {"bf16": False, "fp16": False, "tf32": False}


def test_a_spelling_that_the_file_lacks_is_reported(winner):
    text = json.dumps({"precision": "32-true", "batch_size": 1})
    found, values = patched(text, JSON, winner(amp="tf32"))
    assert values == {"precision": "32-true", "batch_size": 32}
    assert "amp: tf32: precision has no value for it" in found.left_out


def test_a_switch_stays_a_switch(winner):
    found = winner(compile="max-autotune", searched=("compile",))
    _, values = patched('{"torch_compile": false}', JSON, found)
    assert values == {"torch_compile": True}


@pytest.mark.parametrize("value", ["reduce-overhead", 0.5, False])
def test_at_its_own_path_a_value_is_what_the_trials_had(winner, value):
    found, values = patched('{"compile": false}', JSON, winner(compile=value, searched=("compile",)))
    assert values == {"compile": value}
    assert found.replaced == (() if value is False else (f"compile: False -> {value}",))


@pytest.mark.parametrize(("workers", "expected"), [(0, (False, None)), (2, (True, 4))])
def test_without_workers_the_trainers_loader_has_no_worker_settings(winner, workers, expected):
    names = ("dataloader_num_workers", "dataloader_persistent_workers", "dataloader_prefetch_factor")
    trainer = dict(zip(names, (workers, True, 4), strict=True))
    searched = tuple(f"trainer.{name}" for name in names)
    found = winner(workload=Workload("transformers"), data=None, trainer=trainer, searched=searched)
    _, values = patched(json.dumps(dict.fromkeys(names, 1) | {names[1]: True}), JSON, found)
    assert tuple(values.values()) == (workers, *expected)


def test_the_commands_own_file_gets_what_its_trials_get(winner, tmp_path):
    before = {"zero_optimization": {"stage": 0}, "bf16": {"enabled": False}, "lr": 1}
    (tmp_path / "ds.json").write_text(json.dumps(before))
    set_ = {"zero_optimization.stage": "{zero_stage}", "bf16.enabled": {"amp": "brain"}}
    values = {"kind": "command", "run": "python train.py --deepspeed {ds}", "quality": "reported"}
    values["files"] = {"ds": {"base": "ds.json", "set": set_}}
    found = winner(workload=CommandWorkload.parse(values, tmp_path), zero_stage=2)
    done = patch.patch(Document.read(tmp_path / "ds.json"), found)
    assert done.left_out == (
        "data.batch_size: 32: not in workload.files",
        "optim.lr: 0.0002: not in workload.files",
    )
    assert json.loads(done.text) == {"zero_optimization": {"stage": 2}, "bf16": {"enabled": True}, "lr": 1}
