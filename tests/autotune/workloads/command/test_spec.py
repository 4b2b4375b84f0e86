"""Mistakes in a command's spec: reported on one line, before anything starts."""

import pytest

from autotune.core.errors import InputError
from autotune.workloads.command import spec
from autotune.workloads.command.spec import Spec

GOOD = {"run": "python train.py --lr {lr}", "quality": {"bleu_4": "BLEU ([0-9.]+)"}}


def read_spec(values):
    return spec.read(values, Spec)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"run": None}, "workload: run: text, or a list of words, got None"),
        ({"run": 5}, "workload: run: text, or a list of words, got 5"),
        ({"run": ["python", {"a": 1}]}, "workload: run: text, or a list of words, got"),
        ({"flags": {"fast": {True: {"a": 1}}}}, "flags.fast.true: text, or a list of words, got"),
        ({"run": ""}, "workload: run: "),
        ({"run": "python 'train.py"}, "workload: run: No closing quotation"),
        ({"run": "python a.py | tee log"}, "run: no shell reads it; put what needs '|'"),
        ({"run": "CUDA_VISIBLE_DEVICES=0 python a.py"}, "a variable belongs in workload.environment"),
        ({"qualty": {"a": "b"}}, "qualty: no such key, did you mean quality?"),
        ({"resume": {"file": "a", "argumens": "b"}}, "resume.argumens: no such key, did you mean arguments?"),
        ({"resume": "--resume last.pt"}, "resume: arguments with the checkpoint's path"),
        ({"quality": {}}, "quality: {name: pattern}, or reported, got {}"),
        ({"quality": {"bleu_4": "BLEU [0-9.]+"}}, "quality.bleu_4: needs a group for the number"),
        ({"quality": {"bleu_4": "BLEU ([0-9.]+"}}, "quality.bleu_4: must be a regular expression ("),
        ({"samples": "seen"}, "samples: needs a group for the number"),
        ({"samples": "(a)", "steps": "b"}, "at most one of samples, steps, got both"),
        ({"csv": "a", "jsonl": "b"}, "at most one of jsonl, csv, tensorboard, wandb, got jsonl and csv"),
        ({"quality": "reported", "csv": "a"}, "quality: the keys of the scores in the file of csv"),
        ({"setup": "make {workdir}"}, "setup: cannot use {workdir}"),
        ({"seed": 3}, "seed: input should be 'hook', got 3"),
        ({"files": {"ds": {"bas": "a.json"}}}, "files.ds.base: required"),
        ({"files": {"ds": {"base": "a.json", "sets": {}}}}, "files.ds.sets: no such key, did you mean set?"),
        ({"files": {"ds": {"base": "a.toml", "set": {}}}}, "files.ds.base: a.toml: a file must be .json, "),
        ({"files": {"ds": {"base": "a.json", "set": {"a..b": 1}}}}, "files.ds.set: a path must be such as"),
        (
            {"files": {"ds": {"base": "a.json", "set": {"a": {}}}}},
            "set.a: a value, or {setting: value}, got 0",
        ),
        ({"files": {"ds": {"base": "a.json", "set": {}}}}, "files.ds: nothing reads it; write {ds} into"),
        (
            {"files": {"workdir": {"base": "a.json", "set": {}}}},
            "files: must be a name of letters and none of",
        ),
        (
            {
                "setup": "make {ds}",
                "environment": {"DS": "{ds}"},
                "files": {"ds": {"base": "a.json", "set": {}}},
            },
            "setup: cannot use {ds}",
        ),
    ],
)
def test_a_mistake_is_one_line(changes, said):
    with pytest.raises(InputError) as error:
        read_spec({**GOOD, **changes})
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_missing_keys_are_reported_all_at_once():
    with pytest.raises(InputError, match=r"run: required; quality: required: \{name: pattern\}"):
        read_spec({"kind": "command"})


def test_a_pattern_in_a_file_is_its_key():
    read = read_spec({**GOOD, "quality": {"bleu_4": "val/BLEU(4"}, "csv": "{workdir}/metrics.csv"})
    assert read.file == ("csv", "{workdir}/metrics.csv")
    assert read.patterns == {}
    assert read.scores == {"bleu_4": "val/BLEU(4"}


def test_flags_are_the_same_from_yaml_and_from_json():
    from_yaml = read_spec({**GOOD, "flags": {"compile": {True: "--compile"}, "size": {2: "-s 2"}}})
    from_json = read_spec({**GOOD, "flags": {"compile": {"true": "--compile"}, "size": {"2": "-s 2"}}})
    assert from_yaml == from_json
    assert from_yaml.flags["size"]["2"] == ("-s", "2")


def test_a_checkpoint_is_the_path_in_the_arguments_or_named_explicitly():
    read = read_spec({**GOOD, "resume": "--resume={workdir}/last.pt"})
    assert read.resume == spec.Resume(file="{workdir}/last.pt", arguments=("--resume={workdir}/last.pt",))
    said = {"file": "{workdir}/ckpt.pt", "arguments": "--init_from=resume"}
    assert read_spec({**GOOD, "resume": said}).resume.arguments == ("--init_from=resume",)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"lrr": 1}, "workload.run: {lr} is no setting of the baseline, did you mean lrr?"),
        ({"lr": 1, "depth": 3}, "baseline.depth: nothing uses it"),
        ({"lr": 1, "optim": {"beta": 3}}, "baseline.optim.beta: nothing uses it"),
    ],
)
def test_placeholders_and_settings_belong_together(settings, said):
    with pytest.raises(InputError) as error:
        read_spec(GOOD).require_settings(settings)
    assert said in str(error.value)


def test_a_place_in_a_list_is_no_placeholder():
    read = spec.read({**GOOD, "run": ["python", "a.py", "--lr", 3, "{o.b[0]}"]}, spec.Spec)
    assert read.run[2:4] == ("--lr", "3")
    with pytest.raises(
        InputError, match=r"workload\.run: \{o\.b\[0\]\} is no setting .*, did you mean o\.b\?"
    ):
        read.require_settings({"o": {"b": [1, 2]}})


def test_what_the_tuner_and_flags_use_is_used():
    read = read_spec({**GOOD, "flags": {"compile": {True: "--compile"}}})
    read.require_settings({"lr": 1, "compile": False, "seed": 0}, used_by_tuner=("seed",))
    with pytest.raises(InputError, match=r"workload\.flags: compile is no setting"):
        read.require_settings({"lr": 1})


OWN = {
    "run": "python train.py --deepspeed {ds}",
    "quality": {"loss": "loss (.*)"},
    "files": {"ds": {"base": "ds.json", "set": {"a": "{lr}", "bf16.enabled": {"precision": "bf16"}}}},
}


def test_settings_in_files_are_used_and_have_to_be_there():
    read = spec.read(OWN, spec.Spec)
    read.require_settings({"lr": 1, "precision": "bf16"})
    with pytest.raises(InputError, match=r"workload\.files\.ds: \{precision\} is no setting of the baseline"):
        read.require_settings({"lr": 1})
    with pytest.raises(InputError, match=r"workload\.files\.ds: a setting has the same name"):
        read.require_settings({"lr": 1, "precision": "bf16", "ds": 2})
