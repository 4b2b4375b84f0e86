"""The properties of a command before it runs, and what it leaves behind."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.core.errors import InputError
from autotune.workloads.command.workload import CommandWorkload

VALUES = {"kind": "command", "run": "python train.py --lr {optim.lr}", "quality": {"acc": "acc (.*)"}}
SETTINGS = {"optim": {"lr": 0.1}}


def test_paths_are_relative_to_the_file_of_the_search_space(tmp_path):
    values = {**VALUES, "directory": "../code", "python": "../venv/bin/python"}
    workload = CommandWorkload.parse(values, tmp_path / "spaces")
    assert workload.directory == tmp_path / "spaces" / ".." / "code"
    assert workload.value["python"] == str(tmp_path / "spaces" / ".." / "venv/bin/python")
    assert CommandWorkload.parse(workload.value, Path("/elsewhere")) == workload


def test_missing_directories_and_programs_are_reported_before_anything_starts(tmp_path):
    with pytest.raises(InputError, match=r"workload\.directory: there is no directory"):
        CommandWorkload.parse({**VALUES, "directory": "nowhere"}, tmp_path).check(SETTINGS)
    with pytest.raises(InputError, match=r"workload\.python: there is no program"):
        CommandWorkload.parse({**VALUES, "python": "venv/bin/python"}, tmp_path).check(SETTINGS)
    with pytest.raises(InputError, match=r"workload\.run: there is no program no-such"):
        CommandWorkload.parse({**VALUES, "run": "no-such {optim.lr}"}, tmp_path).check(SETTINGS)
    (tmp_path / "train.sh").touch(mode=0o755)
    assert CommandWorkload.parse({**VALUES, "run": "./train.sh {optim.lr}"}, tmp_path).check(SETTINGS) == []


def test_the_objective_must_be_one_of_its_scores(tmp_path):
    CommandWorkload.parse(VALUES, tmp_path).require_comparable([], "acc")
    CommandWorkload.parse({**VALUES, "quality": "reported"}, tmp_path).require_comparable([], "loss")
    with pytest.raises(InputError, match=r"objective: loss is not among the scores.*: one of acc"):
        CommandWorkload.parse(VALUES, tmp_path).require_comparable([], "loss")


def test_the_set_up_runs_once_checked_and_its_failure_is_one_line(tmp_path):
    good = {**VALUES, "setup": "python -c \"open('made', 'a').write('{optim.lr}')\""}
    assert "setup: " in CommandWorkload.parse(good, tmp_path).check(SETTINGS)[0]
    assert (tmp_path / "made").read_text() == "0.1"
    bad = {**VALUES, "setup": "python -c 'raise ValueError(\"no data\")'"}
    with pytest.raises(InputError, match=r"workload.setup: .*: ValueError: no data") as error:
        CommandWorkload.parse(bad, tmp_path).check(SETTINGS)
    assert "\n" not in str(error.value)


def test_its_command_line_is_for_a_shell(tmp_path):
    said = {
        "run": "python -c 'import os, sys; print(os.environ[str.upper(\"a\")], sys.argv[1:])' {name} -n={n}",
        "environment": {"A": "{name}"},
        "flags": {"fast": {True: "--fast"}},
        "training_samples": 500,
        "quality": {"acc": "acc (.*)"},
    }
    workload = CommandWorkload.parse({**said, "resume": "--resume {workdir}/a"}, tmp_path)
    text = workload.command_line({"name": "it's $HOME", "n": 2, "fast": True})
    words = ["it's $HOME", "-n=2", "--fast"]
    done = subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout == f"it's $HOME {words}\n"
    assert shlex.split(text)[:2] == ["cd", str(tmp_path)]
    assert sys.executable in shlex.split(text)


def test_the_workdir_of_an_exported_command_is_printed_and_created(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = 'python -c \'import sys; open(sys.argv[1] + "/made", "w")\' {workdir} {optim.lr}'
    text = CommandWorkload.parse({**VALUES, "run": run, "directory": "/"}, tmp_path).own_file.text(SETTINGS)
    assert text.startswith(f"# It trains into {tmp_path}/trained: put another directory in its place")
    subprocess.run(["sh", "-c", text], check=True)
    assert (tmp_path / "trained" / "made").exists()
    assert "trained" not in CommandWorkload.parse(VALUES, tmp_path).own_file.text(SETTINGS)


def test_the_code_and_the_data_are_known_by_their_files(tmp_path):
    (tmp_path / "train.py").write_text("1")
    (tmp_path / "data.bin").write_text("1")
    workload = CommandWorkload.parse({**VALUES, "data": ["data.bin"], "training_samples": 7}, tmp_path)
    before = workload.revision(), workload.data_fingerprint({})
    assert before == (workload.revision(), workload.data_fingerprint({}))
    (tmp_path / "train.py").write_text("2")
    (tmp_path / "data.bin").write_text("22")
    assert workload.revision() != before[0]
    assert workload.data_fingerprint({}) != before[1]
    assert workload.training_samples({}) == 7
    runs = CommandWorkload.parse({**VALUES, "run": "./train --lr {optim.lr}"}, tmp_path)
    (tmp_path / "train").write_text("1")
    before = runs.revision()
    (tmp_path / "train").write_text("2")
    assert runs.revision() != before, "what is run counts, whatever it is called"
    elsewhere, program = tmp_path / "elsewhere", tmp_path / "bin" / "python3.12"
    for place in (elsewhere, program.parent):
        place.mkdir()
    program.write_text("1")
    line = f"{program} {tmp_path}/train.py --lr {{optim.lr}}"
    absolute = CommandWorkload.parse({**VALUES, "run": line, "directory": "elsewhere"}, tmp_path)
    before = absolute.revision()
    program.write_text("2")
    assert absolute.revision() == before, "an interpreter is none of the user's code"
    (tmp_path / "train.py").write_text("3")
    assert absolute.revision() != before, "wherever it is"
    assert CommandWorkload.parse(VALUES, tmp_path).data_fingerprint({}) is None


def test_settings_and_placeholders_are_compared_in_the_users_words(tmp_path):
    workload = CommandWorkload.parse(VALUES, tmp_path)
    assert workload.check({"optim": {"lr": 1}, "seed": 3}) == []
    with pytest.raises(InputError, match="nothing uses it"):
        workload.check({"optim": {"lr": 1, "beta": 2}})


@pytest.mark.parametrize(
    "used",
    [
        {"run": "true {data}"},
        {"flags": {"data": {"a": "--of-a"}}},
        {"environment": {"DATA": "in/{data}"}},
        {"setup": "fetch {data}"},
        {"run": "true {conf}", "files": {"conf": {"base": "conf.yaml", "set": {"data.path": "{data}"}}}},
    ],
)
def test_it_takes_the_settings_that_it_uses(tmp_path, used):
    assert not CommandWorkload.parse({**VALUES, "run": "true {data.path}"}, tmp_path).takes("data")
    workload = CommandWorkload.parse({**VALUES, **used}, tmp_path)
    assert workload.takes("data")
    assert not workload.takes("skip_bad_samples")


def test_a_unit_needs_a_script_that_reports_it(tmp_path):
    CommandWorkload.parse(VALUES, tmp_path).require_unit("samples")
    CommandWorkload.parse({**VALUES, "quality": "reported"}, tmp_path).require_unit("tokens")
    with pytest.raises(InputError, match=r"unit: a command counts samples, .*, got 'tokens'"):
        CommandWorkload.parse(VALUES, tmp_path).require_unit("tokens")
