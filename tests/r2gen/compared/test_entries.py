"""Reading generated reports back, and choosing the studies to show."""

from pathlib import Path

import pytest

from r2gen.compared import entries
from r2gen.errors import InputError

from .written import entry, write


def test_reports_are_read_as_they_were_written_without_lines_that_are_none(tmp_path: Path) -> None:
    written = [entry(n, images=(f"{n}.png",), found=("edema",)) for n in range(3)]
    file = write(tmp_path / "reports.jsonl", written)
    file.write_text(f'{file.read_text()}{{"id": "9"}}\n[]\n{{')
    assert entries.read(file) == written


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"reports .*/nowhere: cannot be read: No such file or directory$"):
        entries.read(tmp_path / "nowhere")


def test_samples_are_spread_over_the_split_and_the_same_every_time() -> None:
    split = {"baseline": [entry(n) for n in range(100)], "bf16": [entry(n) for n in reversed(range(100))]}
    chosen = entries.spread(split, 5)
    assert [shown.study.id for shown in chosen] == ["10", "30", "50", "70", "90"]
    assert chosen == entries.spread(split, 5)
    assert chosen[0].written == {"baseline": entry(10), "bf16": entry(10)}


def test_samples_are_studies_that_every_model_has_as_many_as_there_are() -> None:
    split = {"baseline": [entry(n) for n in range(10)], "bf16": [entry(n) for n in (3, 5)], "fp16": []}
    assert [shown.study.id for shown in entries.spread(split, 5)] == ["3", "5"]
    assert entries.spread(split, 0) == ()
    assert entries.spread({}, 5) == ()
    assert entries.spread({"baseline": []}, 5) == ()
