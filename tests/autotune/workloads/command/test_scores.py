"""Metrics in lines and in files, as scripts and libraries write them."""

import math
import os
import random
import time

import pytest

from autotune.workloads.command import scores
from autotune.workloads.command.scores import Follower, Patterns, csv_rows, json_lines


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("\tval_BLEU_4   : 0.125", {"bleu_4": 0.125}),
        ("val_BLEU_4: 1e-3, val_BLEU_4: 2e-3", {"bleu_4": 0.002}),
        ("val_BLEU_4: nan", {"bleu_4": math.nan}),
        ("loss: 3", {}),
    ],
)
def test_a_pattern_finds_its_number(text, wanted):
    found = Patterns({"bleu_4": r"val_BLEU_4\s*:\s*(\S+?)(?:,|$)"}).find(text)
    assert found == pytest.approx(wanted, nan_ok=True)


def test_patterns_record_missing_matches_and_values_that_are_no_number():
    patterns = Patterns({"loss": r"loss (\S+)", "acc": r"acc (\S+)", "step": "^step"})
    assert patterns.find("loss high step") == {}
    assert patterns.find("step 12") == {"step": 1.0}
    assert patterns.missing == {"loss": r"loss (\S+)", "acc": r"acc (\S+)"}
    assert patterns.no_number == {"loss": "high"}


def test_numbers_may_be_grouped_and_lines_coloured():
    assert scores.number_in("12,000") == 12000
    assert scores.number_in("1_000.5") == 1000.5
    assert scores.plain("\x1b[36mval\x1b[0m 0.5") == "val 0.5"


def test_json_lines_are_read_once_whole():
    data = b'{"eval": {"loss": 1.5}, "name": "x", "ok": true}\nnot json\n{"lo'
    rows, end = json_lines(data, 0)
    assert rows == [{"eval.loss": 1.5}]
    assert json_lines(data + b'ss": 2}\n', end).rows == [{"loss": 2.0}]


def test_csv_rows_have_the_names_of_the_first_line():
    data = b"step,val loss,note\n1,,x\n2,0.5,y\n3,0."
    rows, end = csv_rows(data, 0)
    assert rows == [{"step": 1}, {"step": 2, "val loss": 0.5}]
    assert csv_rows(data + b"25,z\n", end).rows == [{"step": 3, "val loss": 0.25}]


def test_csv_rows_are_read_once_even_if_columns_change(tmp_path):
    """As Lightning's logger writes them: a new metric rewrites the file with sorted columns.

    The file is empty for a moment meanwhile. If it stays empty, all rows after that are new.
    """
    file = tmp_path / "metrics.csv"
    file.write_text("epoch,loss\n0,0.75\n1,0.5\n")
    follower = Follower("csv", str(file), {"acc": "acc", "loss": "loss"})
    file.write_text("")
    assert follower.look() == []
    file.write_text("acc,epoch,loss\n,0,0.75\n,1,0.5\n0.25,2,0.375\n")
    assert [found.content.scores for found in follower.look()] == [{"acc": 0.25, "loss": 0.375}]
    file.write_text("acc,epoch,loss\n0.5,0,0.25\n")
    assert [found.content.scores for found in follower.look()] == [{"acc": 0.5, "loss": 0.25}], (
        "another run's"
    )
    file.write_text("")
    os.utime(file, (time.time() - 60,) * 2)
    assert follower.look() == []
    file.write_text("loss\n0.5\n0.25\n0.125\n")
    assert [found.content.scores["loss"] for found in follower.look()] == [0.5, 0.25, 0.125]


@pytest.mark.parametrize("read", [json_lines, csv_rows])
@pytest.mark.parametrize("data", [b"", b"\0" * 40, random.Random(0).randbytes(70_000)])
def test_garbage_is_no_row(read, data):
    rows, end = read(data, 0)
    assert all(isinstance(value, float) for row in rows for value in row.values())
    assert 0 <= end <= max(len(data), 1)


def test_a_file_is_followed_from_its_end(tmp_path):
    file = tmp_path / "a" / "log.jsonl"
    file.parent.mkdir()
    file.write_text('{"val": 1}\n')
    follower = Follower("jsonl", str(tmp_path / "*" / "log.jsonl"), {"acc": "val"})
    assert follower.look() == []
    assert follower.missing == {"acc": "val"}
    with file.open("a") as stream:
        stream.write('{"other": 2}\n{"val": 2}\n')
    assert [found.content.scores for found in follower.look()] == [{"acc": 2.0}]
    assert follower.missing == {}
    file.write_text('{"val": 3}\n')  # rewritten
    assert [found.content.scores for found in follower.look()] == [{"acc": 3.0}]
    file.unlink()
    assert follower.look() == []


@pytest.mark.parametrize("jump_s", [-3600, 3600])
def test_a_row_was_written_between_two_looks_wherever_the_wall_clock_jumps(tmp_path, jump_s):
    file = tmp_path / "log.jsonl"
    before_s = time.monotonic()
    follower = Follower("jsonl", str(file), {"acc": "val"})
    file.write_text('{"val": 2}\n')
    os.utime(file, (time.time() + jump_s,) * 2)
    (row,) = follower.look()
    assert before_s <= row.at_s <= time.monotonic()


@pytest.mark.parametrize("place", ["link/val", "there/val", "there/val/run-1/files"])
def test_what_is_logged_counts_in_a_directory_that_is_followed_by_whatever_name(tmp_path, place):
    (tmp_path / "there" / "val" / "run-1" / "files").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "there")
    row = {"val/acc": 0.5, "lr": 1.0}
    for name in ("there", "link"):
        follower = Follower("tensorboard", str(tmp_path / name / "v*"), {"acc": "val/acc", "loss": "l"})
        assert follower.named_scores(str(tmp_path / "there"), row) == {}
        assert follower.named_scores(str(tmp_path / place), row) == {"acc": 0.5}
        assert (follower.missing, follower.look()) == ({"loss": "l"}, [])
