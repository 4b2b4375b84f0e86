"""Readers who do not know the models: the sheet of `report --blind`, the answers of `report --marks`."""

import json
import re
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest

from autotune import __main__ as cli
from autotune.compare import results
from autotune.compare.results import Model, Written
from autotune.core.trial import Measurement, Outcome, Status
from autotune.storage.store import Session

KEPT = Path(__file__).parents[2] / "fixtures" / "sessions"


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs the command line next to a kept session `s`; returns its exit code and output."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(KEPT))
    shutil.copytree(KEPT / "format-2", "s")

    def call(*arguments):
        code = cli.main(list(arguments))
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


@pytest.fixture
def compared(run):
    """The command line next to a session in which two models have written reports."""
    session = Session(Path("s"))
    for label in ("baseline", "bf16"):
        place = session.model_dir(label)
        place.root.mkdir(parents=True)
        results.write(place, Model(label, {}, Outcome(Status.COMPLETED), Measurement(), 400))
        lines = [asdict(Written(str(n), (), "true", f"{label} wrote {n}")) for n in range(6)]
        place.reports_file.write_text("\n".join(map(json.dumps, lines)))
    return run


def saved(mark, reports):
    """Answers that give all reports of a sheet whose text has `reports` in it the same mark."""
    found = re.findall(
        r'data-report="(\w+)".*?<p class="text">(.*?)</p>', Path("sheet.html").read_text(), re.DOTALL
    )
    marks = {name: {"mark": mark, "note": "seen"} for name, text in found if reports in text}
    Path("answers.json").write_text(json.dumps({"format": 1, "reader": "AB", "marks": marks}))


def test_a_sheet_is_marked_read_back_and_unblinded(compared):
    code, out, err = compared("report", "s", "--blind", "sheet.html", "--samples", "3")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "Sheet: sheet.html: 6 reports of 3 studies",
        "Read the answers: python -m autotune report s --marks answers.json",
    ]
    saved("correct", "bf16 wrote")
    code, out, _ = compared("report", "s", "--marks", "answers.json", "--format", "json", "-o", "-")
    found = json.loads(out)["reading"]
    assert (code, found["readers"], [m["label"] for m in found["models"]]) == (0, ["AB"], ["bf16"])
    assert (found["models"][0]["reports"], found["models"][0]["correct_marks"]) == (3, 3)
    assert found["models"][0]["correct"]["value"] == 1.0
    assert [(r["study"], r["note"]) for r in found["remarks"]] == [
        ("1", "seen"),
        ("3", "seen"),
        ("5", "seen"),
    ]

    saved("major error", "baseline wrote 3")
    told = compared("report", "s", "--marks", "answers.json")
    assert told == (0, "Report: s/report.html\n", "Marks: 1 of reader AB; 3 earlier ones stay\n")
    assert "Blind reading" in Path("s", "report.html").read_text()
    assert "| blind reading | reports | correct |" in compared("report", "s", "--format", "md", "-o", "-")[1]


def test_marks_that_replace_others_and_those_that_stay_are_said(compared):
    compared("report", "s", "--blind", "sheet.html")
    saved("correct", "wrote")
    for _ in range(2):
        assert compared("report", "s", "--marks", "answers.json")[2] == "Marks: 10 of reader AB\n"
    saved("major error", "bf16 wrote")
    told = compared("report", "s", "--marks", "answers.json")[2]
    replaced = "Marks: 5 of reader AB; 5 earlier marks of that reader are replaced"
    assert told == f"{replaced}; 5 earlier ones stay\n"
    Session(Path("s")).model_dir("baseline").reports_file.unlink()
    told = compared("report", "s", "--marks", "answers.json")[2]
    assert told == "Marks: 5 of reader AB\n", "of reports that are no longer there none counts"


def test_a_report_without_studies_has_what_was_found_of_all_of_them(compared):
    compared("report", "s", "--blind", "sheet.html")
    saved("correct", "bf16 wrote")
    compared("report", "s", "--marks", "answers.json", "--samples", "0")
    page = Path("s", "report.html").read_text()
    assert "Blind reading" in page
    assert "No reports have been written yet" not in page


def test_marks_that_cannot_be_read_are_one_line(compared):
    compared("report", "s", "--blind", "sheet.html")
    saved("correct", "wrote")
    Session(Path("s")).comparison.marks_file.write_text('{"AB": {},}')
    for more in ((), ("--marks", "answers.json")):
        code, out, err = compared("report", "s", *more)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "marks.json: the marks of blind readers cannot be read: " in err


def test_marks_of_texts_that_are_gone_count_for_nothing(compared):
    compared("report", "s", "--blind", "sheet.html")
    saved("correct", "wrote 3")
    Session(Path("s")).model_dir("bf16").reports_file.unlink()
    told = compared("report", "s", "--marks", "answers.json", "-o", "report.html")[2]
    assert told == "Marks: 1 of reader AB; 1 more are for reports that no longer exist\n"
    Session(Path("s")).model_dir("baseline").reports_file.unlink()
    code, out, err = compared("report", "s", "--marks", "answers.json")
    assert (code, out) == (2, "")
    assert err.endswith("answers.json: none of its 2 marks is for a report in session s\n")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--blind", "sheet.html"], ["session s: has no reports to be marked", "autotune compare s"]),
        (["--marks", "nowhere.json"], ["nowhere.json", "cannot be read"]),
        (["--blind", "sheet.html", "--samples", "0"], ["--samples: at least 1 study with --blind: got 0"]),
        (["--marks", "a", "--blind", "b"], ["one of --blind and --marks: got b and a"]),
    ],
)
def test_bad_input_is_one_line(run, arguments, parts):
    code, out, err = run("report", "s", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    for part in parts:
        assert part in err


def test_answers_need_a_sheet_of_the_session(compared):
    Path("answers.json").write_text('{"format": 1, "reader": "AB", "marks": {"x": {"mark": "correct"}}}')
    code, out, err = compared("report", "s", "--marks", "answers.json")
    assert (code, out) == (2, "")
    assert "blind.json: is not there: no sheet for blind readers was made of this session" in err
