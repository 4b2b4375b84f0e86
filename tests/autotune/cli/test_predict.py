"""The command `predict`, over a session of a real search."""

import json
import shutil
from pathlib import Path

import pytest

from autotune import __main__ as cli

KEPT = Path(__file__).parents[2] / "fixtures" / "sessions"


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs the command next to a kept session `s`; returns its exit code and output."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    shutil.copytree(KEPT / "drawn", "s")

    def call(*arguments):
        code = cli.main(["predict", *arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


def test_it_says_for_each_size_what_to_run(run):
    code, out, err = run("s", "--memory", "64MiB,512MiB,8GiB")
    assert (code, err) == (0, "")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[0].startswith("trial 5: batch 16 bf16")
    assert lines[2] == "64 MiB - - - - not known"
    assert any(line.startswith("64 MiB: not known: micro_batch_size 1 may need") for line in lines)
    assert lines[3].startswith("512 MiB 8 2 16 0.001 ")
    assert lines[4].startswith("8.0 GiB 32 1 32, changed 0.00141 ")


def test_json_output_is_one_object(run):
    code, out, _ = run("s", "--memory", "512MiB,8GiB,8GiB", "--json")
    told = json.loads(out)
    assert (code, told["format"], told["session"], told["trial"]) == (0, 1, "s", 5)
    assert [fit["memory_bytes"] for fit in told["fits"]] == [2**29, 2**33], "each size once"
    assert told["fits"][0]["config"]["accumulation_steps"] == 2
    assert told["fits"][0]["peak"]["high_bytes"] <= told["fits"][0]["allowed_bytes"]


def test_the_default_sizes_are_those_of_common_gpus(run):
    assert len(json.loads(run("s", "--json")[1])["fits"]) == 6


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["nowhere"], ["nowhere", "there is no session here"]),
        (["s", "--memory", "8GiB,much"], ["--memory", "a positive number with MiB", "'much'"]),
        (["s", "--memory", ""], ["--memory", "''"]),
        (["s", "--memory", "8GiB,"], ["--memory", "''"]),
        (["s", "--memory", "0GiB"], ["--memory", "'0GiB'"]),
        ([], ["Missing argument", "session"]),
    ],
)
def test_bad_input_is_one_line(run, arguments, parts):
    code, out, err = run(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    for part in parts:
        assert part in err


def test_without_a_baseline_there_is_nothing_to_predict_from(run):
    shutil.copytree(KEPT / "format-2", "begun")
    for file in Path("begun").glob("study.db*"):
        file.unlink()
    code, _, err = run("begun")
    assert code == 2
    assert err.count("\n") == 1
