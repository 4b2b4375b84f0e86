"""Records are written to files that other tools read."""

import json
import math
import sys
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from r2gen.errors import InputError, StorageError
from r2gen.logs import Board, RecordFile, tagged
from tests.r2gen.faults import no_file_beyond

STEP = {"samples": 4, "epoch": 1, "train_loss": 3.0, "learning_rate": 1e-4, "bad_steps": 0}


@pytest.mark.parametrize("before", ["", '{"samples": 1}\n', '{"samples": 1}\n{"sam'])
def test_records_are_appended_and_a_torn_line_gets_one_of_its_own(tmp_path: Path, before: str) -> None:
    file = tmp_path / "records.jsonl"
    file.write_text(before)
    with RecordFile(file) as records:
        records.write({"samples": 4, "train_loss": math.nan, "collapsed": True, "items": [0.5]})
        records.write({"samples": 8, "train_loss": math.inf})

    lines = file.read_text().splitlines()
    assert lines[: len(before.splitlines())] == before.splitlines()
    found = [json.loads(line, parse_constant=pytest.fail) for line in lines[len(before.splitlines()) :]]
    at = found[0].pop("at")
    assert at <= found[1].pop("at")
    assert found == [
        {"samples": 4, "train_loss": None, "collapsed": True, "items": [0.5]},
        {"samples": 8, "train_loss": None},
    ]


def test_a_record_is_in_the_file_as_soon_as_it_is_written(tmp_path: Path) -> None:
    with RecordFile(tmp_path / "records.jsonl") as records:
        records.write(STEP)
        assert (tmp_path / "records.jsonl").read_text().endswith("}\n")


def test_a_full_disk_is_reported(tmp_path: Path) -> None:
    said = r"r\.jsonl: cannot be written: File too large"
    with no_file_beyond(100), pytest.raises(StorageError, match=said), RecordFile(tmp_path / "r.jsonl") as to:
        to.write(STEP | {"text": "x" * 200})


def test_charts_have_the_names_that_those_of_a_search_have() -> None:
    assert tagged(STEP) == {
        "train/epoch": 1,
        "train/loss": 3.0,
        "train/learning_rate": 1e-4,
        "train/bad_steps": 0,
    }
    evaluation = {"samples": 4, "val_loss": 2.5, "bleu_4": 0.1, "test_bleu_4": 0.2, "collapsed": False}
    assert tagged(evaluation | {"bleu_4_items": [1.0]}) == {
        "val/loss": 2.5,
        "val/bleu_4": 0.1,
        "test/bleu_4": 0.2,
    }


def test_charts_of_a_resumed_run_replace_steps_beyond_its_checkpoint(tmp_path: Path) -> None:
    for samples in ((4, 8, 12), (8, 12)):
        with Board(tmp_path) as board:
            for count in samples:
                board.write({"samples": count, "train_loss": float(len(samples))})
    losses = [(e.step, e.value) for e in EventAccumulator(str(tmp_path)).Reload().Scalars("train/loss")]
    assert losses == [(4, 3.0), (8, 2.0), (12, 2.0)]


def test_without_tensorboard_the_option_names_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto", None)  # an import of it fails
    with pytest.raises(InputError, match="--tensorboard: needs TensorBoard: pip install tensorboard"):
        Board(tmp_path / "board")
    assert not (tmp_path / "board").exists()
