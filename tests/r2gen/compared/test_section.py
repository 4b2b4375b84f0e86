"""The report's section, from the files of models and readers."""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from r2gen.compared.answers import id_of
from r2gen.compared.section import section

from .written import entry, write


def test_it_has_the_figures_of_every_model_and_the_answers_of_readers(tmp_path: Path) -> None:
    files = {
        label: write(
            tmp_path / label / "reports.jsonl",
            [entry(n, f"{label} wrote {n}", found=("edema",), true=("edema",)) for n in range(6)],
        )
        for label in ("baseline", "bf16")
    }
    files["fp16"] = write(tmp_path / "fp16" / "reports.jsonl", [])
    found = section(tmp_path, files, 3)
    assert found is not None
    assert [table.title for table in found.tables] == ["Clinical findings and words", "Finding by finding"]
    assert [row[0] for row in found.tables[0].rows] == ["baseline", "bf16"]
    assert [shown.study.id for shown in found.studies] == ["1", "3", "5"]

    marks = {id_of("3", "bf16 wrote 3"): {"mark": "correct", "note": "seen"}}
    (tmp_path / "answers-AB.json").write_text(json.dumps({"format": 1, "reader": "AB", "marks": marks}))
    read = section(tmp_path, files, 0)
    assert read is not None
    assert [table.title for table in read.tables[2:]] == ["Blind reading", "Notes of the readers"]
    assert read.tables[2].rows[0][:3] == ("bf16", "1", "1")
    assert all(len(row) == len(table.head) for table in read.tables for row in table.rows)
    assert read.html() == ""
    assert asdict(found)["studies"][0]["written"]["bf16"]["report"] == "bf16 wrote 1"


def test_without_reports_there_is_none(tmp_path: Path) -> None:
    assert section(tmp_path, {}, 5) is None
    assert section(tmp_path, {"bf16": write(tmp_path / "reports.jsonl", [])}, 5) is None


def test_it_imports_no_torch() -> None:
    code = "import sys; from r2gen.compared import page, section; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
