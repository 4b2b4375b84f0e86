"""`judge` runs two real commands in turns; they sleep to take a certain time."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from autotune.__main__ import main
from autotune.cli.app import app
from autotune.core.errors import InputError
from autotune.sessions import judge
from autotune.sessions.requests import JudgeRequest
from autotune.storage import lock

SCRIPT = """\
import argparse, random, time
parser = argparse.ArgumentParser()
parser.add_argument("--sleep", type=float)
parser.add_argument("--loss", type=float, default=1.0)
parser.add_argument("--noise", type=float, default=0.001)
args = parser.parse_args()
random.seed(1)
open("model.pt", "w").write("weights")
for step in range(4):
    time.sleep(args.sleep / 4)
    print(f"val_loss {args.loss + 3 - step + random.random() * args.noise:.5f}")
"""
SLOW, FAST = "0.8", "0.05"


@pytest.fixture
def directory(tmp_path, monkeypatch):
    (tmp_path / "train.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def line(sleep, *more):
    return [sys.executable, "train.py", "--sleep", sleep, *more]


def asked(**more):
    return JudgeRequest(**{"session": Path("judged"), "as_json": True, "pairs": 10, **more})


def answer(capsys):
    return json.loads(capsys.readouterr().out)


def test_a_faster_command_is_confirmed_and_leaves_nothing_in_the_directory(directory, capsys):
    code = judge.judge([*line(SLOW), "--vs", *line(FAST)], asked())
    found = answer(capsys)
    assert (code, found["confirmed"], found["score"]) == (0, True, "val_loss")
    assert found["factor"]["low"] > 1
    finals = [run["score"] for run in found["runs"]["A"]]
    assert len(set(finals)) == len(finals), "every pair has a seed of its own"
    assert {path.name for path in directory.iterdir()} == {"train.py", "judged"}
    assert not list((directory / "judged" / "work").iterdir())


@pytest.mark.slow
def test_a_command_that_ends_worse_is_refused(directory, capsys):
    code = judge.judge([*line(SLOW), "--vs", *line(FAST, "--loss", "2")], asked())
    found = answer(capsys)
    assert (code, found["confirmed"]) == (1, False)
    assert found["why_not"] == "its val_loss is worse"


@pytest.mark.parametrize("at", [0, 2], ids=["from the first evaluation on", "after some"])
def test_a_command_that_diverges_is_refused(directory, capsys, at):
    loss = "float('nan') if step >= DIVERGES else args.loss + 3 - step"
    diverging = SCRIPT.replace("args.loss + 3 - step", loss.replace("DIVERGES", str(at)))
    (directory / "diverging.py").write_text(diverging)
    changed = [sys.executable, "diverging.py", "--sleep", FAST]
    code = judge.judge([*line(SLOW), "--vs", *changed], asked(score="val_loss", minimize=True))
    found = answer(capsys)
    assert (code, found["confirmed"]) == (1, False)
    assert found["why_not"] == "its val_loss is not a number"


def test_the_direction_of_a_named_score_is_asked_for_before_the_first_training(directory, capsys):
    with pytest.raises(InputError, match=r"^--score goodness: say whether higher is better"):
        judge.judge([*line(FAST), "--vs", *line(FAST)], asked(score="goodness"))
    assert "trains" not in capsys.readouterr().err


@pytest.mark.long
def test_it_continues_from_its_earlier_trainings(directory, capsys):
    words = [*line(SLOW, "--noise", "1"), "--vs", *line(FAST, "--noise", "1")]  # too noisy to be decided
    assert judge.judge(words, asked(pairs=3)) == 1
    assert [len(runs) for runs in answer(capsys)["runs"].values()] == [3, 3]
    with (directory / "judged" / "judge.jsonl").open("a") as file:
        file.write('{"side": "A", "pa')  # cut short by a kill
    assert judge.judge(words, asked(pairs=4)) == 1
    told = capsys.readouterr()
    assert told.err.count("trains with seed 3") == 2
    assert "trains with seed 0" not in told.err


def test_trainings_of_another_script_do_not_count(directory):
    words = [*line(FAST), "--vs", *line(FAST)]
    judge.judge(words, asked(pairs=3))
    (directory / "train.py").write_text(SCRIPT.replace("random.random()", "random.random() * 2"))
    with pytest.raises(InputError, match="other commands or scripts"):
        judge.judge(words, asked(pairs=3))


def test_a_command_that_fails_is_named_with_its_last_lines(directory, capsys):
    with pytest.raises(InputError, match=r"^B ended with exit code 2"):
        judge.judge([*line(FAST), "--vs", *line(FAST, "--unknown")], asked())
    assert "unrecognized arguments: --unknown" in capsys.readouterr().err


@pytest.mark.parametrize("limit", ["0.000001s", "1s"], ids=["before a training", "in a training"])
def test_a_time_limit_ends_it_undecided(directory, capsys, limit):
    code = judge.judge([*line("60"), "--vs", *line("60")], asked(time=limit, score="val_loss"))
    assert code == 1
    assert answer(capsys)["why_not"].startswith("out of time")


@pytest.mark.parametrize("words", [["python", "a.py"], ["a", "--vs"], ["a.txt", "b.txt"], ["a", "b", "c"]])
def test_other_command_lines_are_refused(words):
    with pytest.raises(InputError, match="needs two command lines"):
        judge.split(words)


def test_two_scripts_are_run_by_their_suffixes():
    assert judge.split(["a.py", "b.sh"]) == (["python", "a.py"], ["sh", "b.sh"])


@pytest.mark.slow
def test_the_command_line_takes_both(directory, capsys):
    shutil.copy("train.py", "changed.py")
    options = ["--json", "--pairs", "10", "--score", "val_loss", "--session", "judged"]
    words = [*line(SLOW), "--vs", sys.executable, "changed.py", "--sleep", FAST]
    code = app(["judge", *options, "--", *words], standalone_mode=False)
    assert code == 0
    assert answer(capsys)["confirmed"] is True


@pytest.mark.parametrize("key", [["--api-key", "abc123def"], ["--hf_token=hf_PlantedPlanted0001"]], ids=str)
def test_a_key_on_a_command_line_is_refused_and_not_written(directory, capsys, key):
    assert main(["judge", "--session", "judged", "--", *line(FAST), "--vs", *line(FAST, *key)]) == 2
    said = capsys.readouterr().err
    assert "looks like a key or a password" in said
    assert key[-1].rpartition("=")[2] not in said
    assert not (directory / "judged").exists()


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("damaged", ["[]", "3", '{"commands": 1}', '{"side": "A"}', "null"])
def test_a_damaged_comparison_is_refused_in_one_line(directory, capsys, at, damaged):
    shutil.copy("train.py", "b.py")
    question = judge._Question(("python train.py", "python b.py"), judge._digests([["train.py", "b.py"]]))
    lines = [json.dumps(judge._LINE.dump_python(question))]
    lines.insert(at, damaged)
    (directory / "judged").mkdir()
    (directory / "judged" / "judge.jsonl").write_text("\n".join(lines))
    assert main(["judge", "train.py", "b.py", "--session", "judged", "--time", "0.000001s"]) == 2
    assert capsys.readouterr().err == "autotune: judged/judge.jsonl: is damaged; name a new --session\n"


def test_two_processes_do_not_share_a_comparison(directory, capsys):
    (directory / "judged").mkdir()
    with lock.hold_file(directory / "judged" / "lock", "it"):
        assert main(["judge", "train.py", "b.py", "--session", "judged"]) == 2
    assert "comparison judged: is in use by pid" in capsys.readouterr().err


def test_a_directory_that_cannot_be_made_is_refused_in_one_line(directory, capsys):
    assert main(["judge", "train.py", "b.py", "--session", "train.py/x"]) == 2
    assert capsys.readouterr().err == "autotune: --session train.py/x: cannot be made: Not a directory\n"


def test_an_argument_may_be_longer_than_a_name_of_a_file(directory, capsys):
    words = [*line(FAST), "--vs", *line(FAST, "x" * 300)]
    assert judge.judge(words, asked(time="0.000001s", score="val_loss")) == 1


def test_a_comparison_in_a_pipe_is_refused_in_one_line(directory, capsys):
    (directory / "judged").mkdir()
    os.mkfifo("judged/judge.jsonl")
    assert main(["judge", "train.py", "b.py", "--session", "judged"]) == 2
    assert "judge.jsonl: must be a regular file" in capsys.readouterr().err
