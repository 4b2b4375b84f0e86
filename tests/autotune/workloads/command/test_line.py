"""Arguments from settings and a command line: without a shell, no character in a value is special."""

import pytest

from autotune.workloads.command import line


@pytest.mark.parametrize(
    ("texts", "values", "wanted"),
    [
        (["--lr={lr}"], {"lr": 0.0001}, ["--lr=0.0001"]),
        (["--name", "{name}"], {"name": "; rm -rf / $(x) 'y'"}, ["--name", "; rm -rf / $(x) 'y'"]),
        (["optim.betas={optim.betas}"], {"optim.betas": [0.9, 0.95]}, ["optim.betas=[0.9,0.95]"]),
        (["--betas", "{optim.betas}"], {"optim.betas": [0.9, 0.95]}, ["--betas", "0.9", "0.95"]),
        (["{optim}"], {"optim": {"lr": 1}}, ['{"lr":1}']),
        (["{{lr}}", '{"a": 1}', "${oc.env:HOME}"], {"lr": 1}, ["{lr}", '{"a": 1}', "${oc.env:HOME}"]),
        (["{unknown}", "{on}", "{none}"], {"on": True, "none": None}, ["{unknown}", "True", "None"]),
        (["{a}{b}"], {"a": "{b}", "b": 2}, ["{b}2"]),
    ],
)
def test_a_value_stays_in_its_word(texts, values, wanted):
    assert line.words(texts, values) == wanted


def test_a_line_is_split_once_and_may_be_continued():
    assert line.split("python a.py \\\n --x 'a b' {lr}") == ["python", "a.py", "--x", "a b", "{lr}"]


def test_flags_are_found_by_the_value_from_yaml_and_from_json():
    given = {"compile": {"true": ("--compile",)}, "precision": {"bf16": ("--bf16", "--scale={scale}")}}
    values = {"compile": True, "precision": "bf16", "scale": 2}
    assert line.flags(given, values) == ["--compile", "--bf16", "--scale=2"]
    assert line.flags(given, {"compile": False, "precision": "fp32"}) == []


def test_the_names_in_a_line_and_the_unused_settings():
    settings = {"optim": {"lr": 1, "betas": [1]}, "depth": 2, "seed": 0}
    assert line.names_in(["{a.b}{c}", "{{d}}", "{c}"]) == ["a.b", "c"]
    assert line.unused(settings, ["optim.lr", "seed"]) == ["optim.betas", "depth"]
    assert line.unused(settings, ["optim", "depth", "seed"]) == []


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("--resume {workdir}/last.pt", "{workdir}/last.pt"),
        ("--resume={workdir}/a/b.pt --x", "{workdir}/a/b.pt"),
        ("--resume", None),
    ],
)
def test_the_path_in_arguments(text, wanted):
    assert line.path_in(line.split(text)) == wanted
