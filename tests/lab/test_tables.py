"""Bad input to `python -m lab`: one line with the rule, what was given, what is allowed; exit code 2."""

from pathlib import Path

import pytest

from autotune import __main__ as cli
from autotune.space import configurations
from lab.__main__ import app
from lab.replay import table
from lab.replay.table import Header
from tests.command_line import SPACE, drawn, is_one_line, runner


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return drawn(tmp_path_factory)


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs the command line in an empty directory; returns its exit code and output."""
    return runner(lambda words: cli.main(words, lambda: app, "lab"), tmp_path, monkeypatch, capsys)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["record", "t.jsonl"], ["Missing option", "--space"]),
        (
            ["record", "t.jsonl", "--space", "nowhere.yaml"],
            ["nowhere.yaml", "cpu, gpu, gpu-small, laptop-8gb"],
        ),
        (["record", "t.jsonl", "--space", "cpu", "--only", "some"], ["--only", "all, timed, untimed"]),
        (["record", "t.jsonl", "--space", "cpu", "--drift", "long"], [": --drift: a duration is"]),
        (["record", "t.jsonl", "--space", "cpu", "--memory-limit", "3gigs"], [": --memory-limit: a size is"]),
        (["replay", "nowhere.jsonl"], ["nowhere.jsonl", "cannot be read"]),
        (
            ["replay", "nowhere.jsonl", "--strategy", "luck"],
            ["--strategy", "ours, optuna, told, gp, random, asha, bohb, doubling, zeus, oracle, warm"],
        ),
    ],
)
def test_a_wrong_option_is_one_line(run, arguments, parts):
    is_one_line(*run(*arguments), *parts)


def test_a_grid_that_is_not_finite_is_one_line_and_makes_no_table(run, data):
    Path("grid.yaml").write_text(SPACE.replace("choice: [4, 8]", "randint: [4, 8]"))
    is_one_line(
        *run("record", "t.jsonl", "--space", "grid.yaml", "--data", data),
        "every knob must be a choice: micro_batch_size",
    )
    assert not Path("t.jsonl").exists()


def test_a_table_with_runs_missing_is_not_replayed(run, grid):
    table.create(Path("t.jsonl"), Header(grid, {}))
    is_one_line(*run("replay", "t.jsonl"), "of its grid are missing", "lab record t.jsonl")


def test_a_whole_table_is_replayed(run, recorded):
    table.create(Path("t.jsonl"), recorded.header)
    for config in configurations.allowed(recorded.space):
        for made_up in (r for r in recorded.timed(config) if r.config == config):
            table.append(Path("t.jsonl"), made_up)
    code, out, err = run("replay", "t.jsonl", "--seeds", 2, "--trials", 8)
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "Simulated device time, medians of 2:"
    assert out.splitlines()[-1].startswith("ours ")


def test_a_table_of_another_grid_is_not_continued(run, data, grid):
    table.create(Path("t.jsonl"), Header(grid, {}))
    Path("grid.yaml").write_text(SPACE)
    is_one_line(*run("record", "t.jsonl", "--space", "grid.yaml", "--data", data), "holds another grid")


def test_data_for_a_workload_that_takes_none_are_refused(run, data):
    Path("space.yaml").write_text(SPACE.replace("r2gen", "json:loads"))
    rule = "autotune: --data: must be a setting of the workload or of the baseline; neither json:loads nor"
    is_one_line(*run("record", "t.jsonl", "--space", "space.yaml", "--data", data), rule)
    assert [file.name for file in Path().iterdir()] == ["space.yaml"]
