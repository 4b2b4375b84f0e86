"""Bad input on the command line ends with exit code 2, and a line on what was given and what is allowed."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from autotune import __main__ as cli
from autotune.cli.app import app
from autotune.storage.store import StoredSession
from tests.command_line import SPACE, drawn, is_one_line, runner
from tests.faults.left_by_a_search import HARDWARE
from tests.faults.sessions import run_no_trials

KEPT = Path(__file__).parents[2] / "fixtures" / "sessions"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return drawn(tmp_path_factory)


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs the command line in an empty directory; returns its exit code and output."""
    return runner(cli.main, tmp_path, monkeypatch, capsys)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["search", "--space", "nowhere.yaml"], ["nowhere.yaml", "cpu, gpu, gpu-small, laptop-8gb"]),
        (["search", "--trials", "none"], ["--trials", "none"]),
        (["search", "--trials", "0"], ["--trials", "0"]),
        (["search", "--time", "2hours"], [": --time: a duration is a positive number", "'2hours'"]),
        (["search", "--time", ""], [": --time: a duration is a positive number", "''"]),
        (["search", "--keep", "2"], ["--keep", "2"]),
        (["search", "--within", "-1"], ["--within", "-1"]),
        (["search", "--keep", "0.9", "--within", "1"], [": --keep, --within: one of keep and within"]),
        (["search", "--select", "best"], [": --select: ", "'same-training' or 'pareto'", "'best'"]),
        (["search", "--select", "pareto", "--target", "0.2"], [": --select, --target: a target needs"]),
        (["search", "--promise", "same-training", "--target", "0.2"], [": --promise, --target: a target"]),
        (["search", "--target", "nan"], [": --target: ", "finite"]),
        (["search", "--memory-fraction", "0"], [": --memory-fraction: ", "greater than 0"]),
        (["search", "--promise", "speed"], ["--promise", "same-quality, same-training", "'speed'"]),
        (["search", "--promise", "same-training", "--select", "pareto"], ["means --select same-training"]),
        (["search", "--samples", "some"], ["--samples", "auto", "'some'"]),
        (["search", "--repeats", "2"], [": --repeats: 0, or at least 3", "got 2"]),
        (["search", "--finalists", "0"], ["--finalists", "0"]),
        (["search", "--wandb", "maybe"], ["--wandb", "auto, online, offline, off"]),
        (["search", "--wandb", "online"], ["WANDB_API_KEY"]),
        (["search", "--model", "huge"], ["--model", "full, small"]),
        (["search", "--memory-limit", "3gigs"], [": --memory-limit: a size is a positive number", "'3gigs'"]),
        (["search", "--stall-timeout", "-1"], [": --stall-timeout: a duration is a positive number"]),
        (["search", "--gpus-per-trial", "99"], ["--gpus-per-trial"]),
        (["search", "--address", "127.0.0.1:1"], ["--address 127.0.0.1:1", "nothing listens there"]),
        (["search", "--address", "nonsense"], ["--address nonsense", "no Ray cluster answers"]),
        (["search", "--cpus-per-trial", "9999"], ["--cpus-per-trial", "at most"]),
        (["search", "--data", "nowhere"], ["nowhere", "annotation.json", "cannot be read"]),
        (["search", "--baseline", "nowhere.yaml"], ["nowhere.yaml", "cannot be read"]),
        (["search", "--surprise"], ["--surprise"]),
        (["surprise"], ["surprise"]),
        (["resume", "nowhere"], ["there is no session here"]),
        (["resume", "nowhere", "--time", "soon"], [": --time: a duration is a positive number", "'soon'"]),
        (["status", "nowhere"], ["there is no session here"]),
        (["export", "nowhere"], ["there is no session here"]),
        (["resume"], ["Missing argument", "session"]),
    ],
)
def test_a_wrong_option_is_one_line(run, arguments, parts):
    is_one_line(*run(*arguments), *parts)


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (lambda root: (root / "annotation.json").unlink(), ["cannot be read"]),
        (lambda root: (root / "annotation.json").write_text("{"), ["is not JSON"]),
        (lambda root: (root / "annotation.json").write_text("[]"), ["must be an object"]),
        (lambda root: next((root / "images").glob("*/0.png")).unlink(), ["is not there"]),
        (lambda root: next((root / "images").glob("*/1.png")).write_text("no"), ["is not an image"]),
        (lambda root: edit(root, lambda a: a.update(val=[])), ["val", "no usable study"]),
        (lambda root: edit(root, lambda a: a["train"][0].update(report=" . ")), ["no words"]),
        (
            lambda root: edit(root, lambda a: a["train"][0].update(image_path=["../x.png", "../y.png"])),
            ["../x.png", "outside"],
        ),
    ],
)
def test_broken_data_is_one_line_and_makes_no_session(run, tmp_path, data, change, parts):
    root = tmp_path / "data"
    shutil.copytree(data, root)
    change(root)
    is_one_line(*run("search", "--data", root, "--session", "s"), *parts)
    assert not (tmp_path / "s").exists()


def edit(root, change):
    file = root / "annotation.json"
    annotation = json.loads(file.read_text())
    change(annotation)
    file.write_text(json.dumps(annotation))


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ("micro_batch_size: 4", "micro_batch_size: 0", ["baseline", "micro_batch_size", "0"]),
        (
            "micro_batch_size: 4",
            "micro_batchsize: 4",
            ["baseline: micro_batchsize: no such setting, did you mean micro_batch_size?"],
        ),
        ("learning_rate: 1e-3", "d_model: 100", ["num_heads must divide d_model", "100"]),
        ("choice: [4, 8]", "choice: []", ["micro_batch_size", "at least 1"]),
        ("workload: r2gen", "workload: no.such:fit", ["no module no.such"]),
        ("workload: r2gen", "workload: 7", ["workload"]),
        ("learning_rate: 1e-3", "precision: fp16", ["cannot run the baseline", "fp16"]),
        ("knobs: {", "knobs: {surprise: {choice: [1]}, ", ["knob surprise: no such setting"]),
        (
            "knobs: {",
            "knobs: {num_worker: {choice: [1, 2]}, ",
            ["space.yaml: knob num_worker: no such setting, did you mean num_workers?\n"],
        ),
        ("knobs: {", "knob: {", ["knobs: required; knob: no such key, did you mean knobs?"]),
    ],
)
def test_a_wrong_space_is_one_line_and_makes_no_session(run, data, old, new, parts):
    Path("space.yaml").write_text(SPACE.replace(old, new))
    is_one_line(*run("search", "--space", "space.yaml", "--data", data, "--session", "s"), *parts)
    assert not Path("s").exists()


def test_data_for_a_workload_that_takes_none_are_refused(run, data):
    Path("space.yaml").write_text(SPACE.replace("r2gen", "json:loads"))
    rule = "autotune: --data: must be a setting of the workload or of the baseline; neither json:loads nor"
    is_one_line(*run("search", "--session", "s", "--space", "space.yaml", "--data", data), rule)
    assert [file.name for file in Path().iterdir()] == ["space.yaml"]


@pytest.fixture
def _without_trials(monkeypatch):
    """Makes searches end after their preparation."""
    run_no_trials(monkeypatch, HARDWARE)


@pytest.mark.usefixtures("_without_trials")
def test_a_command_that_names_data_takes_it(run):
    line = "true {data} {learning_rate} {micro_batch_size}"
    command = f"{{kind: command, run: '{line}', quality: {{bleu_4: b (.*)}}}}"
    Path("space.yaml").write_text(SPACE.replace("r2gen", command))
    said = run("search", "--space", "space.yaml", "--data", "d", "--session", "s")
    assert (said[0], StoredSession.open(Path("s")).space().baseline["data"]) == (0, "d"), said
    refused = run("search", "--space", "space.yaml", "--session", "s", "--skip-bad-samples")
    is_one_line(*refused, "neither command nor the baseline has skip_bad_samples")


@pytest.mark.usefixtures("_without_trials")
def test_bad_samples_are_left_out_if_the_workload_or_the_baseline_can(run):
    text = SPACE.replace("r2gen", "json:loads")
    Path("without.yaml").write_text(text)
    Path("with.yaml").write_text(text.replace("baseline: {", "baseline: {skip_bad_samples: false, "))
    refused = run("search", "--space", "without.yaml", "--session", "s", "--skip-bad-samples")
    is_one_line(*refused, ": --skip-bad-samples: must be", "json:loads nor the baseline has skip_bad_samples")
    assert run("search", "--space", "with.yaml", "--session", "s", "--skip-bad-samples")[0] == 0
    assert StoredSession.open(Path("s")).space().baseline["skip_bad_samples"] is True


def test_an_existing_session_is_refused_with_the_command_to_continue(run, tmp_path, data):
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "session.json").write_text("{}")
    is_one_line(*run("search", "--data", data, "--session", "s"), "autotune resume s")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_place_that_cannot_be_written_is_one_line(run, tmp_path, data):
    (tmp_path / "closed").mkdir(mode=0o500)
    is_one_line(*run("search", "--data", data, "--session", "closed/s"), "cannot be written")


def test_a_full_disk_is_one_line(run, data):
    is_one_line(*run("search", "--data", data, "--session", "/proc/s"), "cannot be written")


COMMANDS = typer.main.get_command(app)


def test_every_command_has_a_line_and_an_example(run):
    code, out, _ = run("--help")
    assert code == 0
    shown = " ".join(word for word in out.split() if word != "│")
    for name, command in COMMANDS.commands.items():
        line, example = command.help.split("\n\n")
        assert line.endswith("."), name
        assert f"{name} {line} {example}" in shown, "the list of commands has both"
        _, said, _ = run(name, "--help")
        assert said.split("\n")[3].strip() == line
        assert said.split("\n")[5].strip() == example, "on a line of its own, to be copied"


@pytest.mark.parametrize("name", list(COMMANDS.commands))
def test_the_example_of_every_command_is_valid(name):
    label, *words = COMMANDS.commands[name].help.split("\n\n")[1].split()
    assert (label, words[:2]) == ("Example:", ["autotune", name])
    COMMANDS.commands[name].make_context(name, words[2:])  # parses all of it, or raises


@pytest.mark.slow
def test_help_is_quick_and_fits_a_terminal():
    """Covers every command: none may import slow modules."""
    code = (
        "import sys; from autotune.__main__ import main\n"
        "for name in sys.argv[1:]:\n"
        "    code = main([*name.split(), '--help'])\n"
        "    slow = sorted({'torch', 'ray', 'wandb', 'optuna', 'numpy'} & set(sys.modules))\n"
        "    print(f'ended {name}', slow, code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "", *COMMANDS.commands],
        env={**os.environ, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=True,
    )
    said = done.stdout.splitlines()
    ended = [line for line in said if line.startswith("ended ")]
    assert ended == [f"ended {name} [] 0" for name in ("", *COMMANDS.commands)]
    assert max(map(len, said)) <= 80
    assert sum(line.lstrip().startswith("Usage:") for line in said) == len(ended)


def test_status_imports_neither_optuna_nor_torch_nor_ray(tmp_path):
    """It answers in under a second, half of which is Python's own start and the reading of YAML."""
    shutil.copytree(KEPT / "format-2", tmp_path / "s")
    code = (
        "import sys; from autotune.__main__ import main; code = main(['status', 's', *sys.argv[1:]]);"
        "print(sorted({'torch', 'ray', 'wandb', 'optuna', 'numpy', 'psutil'} & set(sys.modules)), code)"
    )
    path = os.pathsep.join([str(KEPT), os.environ.get("PYTHONPATH", "")])
    for options in ((), ("--json",)):
        done = subprocess.run(
            [sys.executable, "-c", code, *options],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.splitlines()[-1] == "[] 0"


@pytest.mark.parametrize(
    "command", [["status"], ["status", "--json"], ["report", "--format", "md"], ["report"], ["export"]]
)
def test_reading_a_session_needs_no_code_of_its_workload(run, tmp_path, monkeypatch, command):
    """A copy can be read from any directory; a workload beside it is not imported."""
    copy = shutil.copytree(KEPT / "format-2", tmp_path / "elsewhere" / "copy")
    space = copy / "space.yaml"
    space.write_text(space.read_text().replace("kept_workload:fit", "trap.kept_workload:fit"))
    name, *options = command
    assert run(name, copy, *options)[::2] == (0, "")
    (tmp_path / "trap").mkdir()
    (tmp_path / "trap" / "__init__.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert run(name, copy, *options)[::2] == (0, "")


def test_continuing_a_session_without_its_code_is_refused(run, tmp_path):
    shutil.copytree(KEPT / "format-2", tmp_path / "s")
    for command in ("resume", "compare"):
        is_one_line(*run(command, "s"), "workload kept_workload:fit: there is no module kept_workload")


@pytest.fixture
def kept(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(KEPT))
    shutil.copytree(KEPT / "format-2", tmp_path / "s")
    return StoredSession.open(tmp_path / "s")


def test_status_shows_what_runs_what_is_best_and_how_everything_ended(run, kept, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = run("status", "s")
    assert (code, err) == (0, "")
    assert "4 of 7 trials ended, 1 interrupted" in out
    assert "351.7 ± 7.8" in out
    assert "82%" in out
    assert "failed (oom): MemoryError" in out
    assert "5 trials: 2 completed, 2 out of memory, 1 interrupted; " in out
    assert "python -m autotune export s -o best.yaml" in out
    with kept.lock():
        assert "4 of 7 trials ended, 1 running" in run("status", "s")[1]


def test_a_terminal_without_some_characters_shows_the_others(tmp_path):
    kept = shutil.copytree(KEPT / "drawn", tmp_path / "kept")
    command = [sys.executable, "-m", "autotune", "status", str(kept)]
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"\d ?\? ?\d", done.stdout)  # a figure and its uncertainty, with ? for the sign


def test_status_as_json_is_one_complete_object(run, kept):
    code, out, err = run("status", "s", "--json")
    assert (code, err, out.count("\n")) == (0, "", 1)
    shown = json.loads(out, parse_constant=pytest.fail)
    assert (shown["session"], shown["state"], shown["planned"]) == ("s", "interrupted", 7)
    assert [t["trial"] for t in shown["trials"]] == [0, 1, 2, 3]
    assert [t["status"] for t in shown["trials"]] == ["completed", "failed", "completed", "failed"]
    (running,) = shown["running"]
    assert (running["trial"], running["phase"], running["share"]) == (4, "interrupted", 0.82)
    assert (shown["verdict"], shown["best"]["trial"], shown["rounds"]) == ("unconfirmed", 2, 0)
    assert shown["factor"]["low"] < shown["factor"]["value"] < shown["factor"]["high"]
    documented = (Path(__file__).parents[3] / "docs" / "reference" / "events.md").read_text()
    for key in shown:
        assert f"`{key}`" in documented, key
