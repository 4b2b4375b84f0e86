"""The command `report`, and the report that every search leaves."""

import json
import os
import re
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest

from autotune import __main__ as cli
from autotune.cli import cli_report
from autotune.compare import results
from autotune.compare.results import Model, Written
from autotune.core.trial import Measurement, Outcome, Status, Trial
from autotune.storage import study as record
from autotune.storage.store import Session

KEPT = Path(__file__).parents[2] / "fixtures" / "sessions"


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs the command line beside a kept session `s`; its exit code and what it said."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(KEPT))
    monkeypatch.setenv("COLUMNS", "200")
    shutil.copytree(KEPT / "format-2", "s")

    def call(*arguments):
        code = cli.main([str(a) for a in arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["nowhere"], ["nowhere", "there is no session here"]),
        (["s", "--format", "pdf"], ["--format", "html, json, md", "'pdf'"]),
        (["s", "--samples", "-1"], ["--samples", "-1"]),
        (["s", "--samples", "few"], ["--samples", "few"]),
        (["s", "--format", "md", "-o", "no/where.md"], ["no/where.md", "cannot be written"]),
        (["s", "--format", "json", "-o", "s"], ["s: cannot be written"]),
        ([], ["Missing argument", "session"]),
        (["s", "--blind", "sheet.html"], ["session s: has no reports to be marked", "autotune compare s"]),
        (["s", "--marks", "nowhere.json"], ["nowhere.json", "cannot be read"]),
        (["s", "--marks", "a", "--blind", "b"], ["one of --blind and --marks: got b and a"]),
    ],
)
def test_bad_input_is_one_line(run, arguments, parts):
    code, out, err = run("report", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    for part in parts:
        assert part in err


@pytest.mark.parametrize("form", ["html", "json", "md"])
def test_a_report_lies_in_its_session_unless_it_is_wanted_elsewhere(run, form):
    code, out, err = run("report", "s", "--format", form)
    assert (code, out, err) == (0, f"Report: s/report.{form}\n", "")
    text = Path("s", f"report.{form}").read_text()
    assert run("report", "s", "--format", form, "--output", "mine") == (0, "Report: mine\n", "")
    assert Path("mine").read_text() == text


def test_html_is_what_is_written_where_nothing_is_asked_for(run):
    assert run("report", "s")[1] == "Report: s/report.html\n"


def test_standard_output_has_the_report_and_nothing_else(run):
    code, out, _ = run("report", "s", "--format", "json", "-o", "-")
    assert code == 0
    assert json.loads(out)["answer"]["verdict"] == "unconfirmed"
    assert not Path("s", "report.json").exists()


@pytest.fixture
def compared(run):
    """The command line beside a session in which two models have written reports."""
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
    assert compared("report", "s", "--marks", "answers.json")[1].splitlines() == [
        "Marks: 1 of reader AB",
        "Report: s/report.html",
    ]
    assert "Blind reading" in Path("s", "report.html").read_text()
    assert "| blind reading | reports | correct |" in compared("report", "s", "--format", "md", "-o", "-")[1]


def test_marks_of_texts_that_are_gone_count_for_nothing(compared):
    compared("report", "s", "--blind", "sheet.html")
    saved("correct", "wrote 3")
    Session(Path("s")).model_dir("bf16").reports_file.unlink()
    told = compared("report", "s", "--marks", "answers.json", "-o", "report.html")[1].splitlines()[0]
    assert told == "Marks: 1 of reader AB; 1 more are of reports that are no longer there"
    Session(Path("s")).model_dir("baseline").reports_file.unlink()
    code, out, err = compared("report", "s", "--marks", "answers.json")
    assert (code, out) == (2, "")
    assert err.endswith("answers.json: none of its 2 marks is of a report that is in session s\n")


def known():
    return record.trials(record.load_study(Path("s", "study.db")))


def test_a_search_leaves_its_report_and_says_where(run):
    assert cli_report.conclude(Path("s"), known()) == ["Report: s/report.html"]
    assert "<html" in Path("s", "report.html").read_text()[:1000]


def test_before_the_baseline_has_ended_there_is_no_report(run):
    assert cli_report.conclude(Path("s"), []) == []
    assert cli_report.conclude(Path("s"), [Trial(0, {})]) == []
    assert not Path("s", "report.html").exists()


def test_a_report_that_cannot_be_written_is_one_line_and_loses_nothing(run):
    before = known()
    Path("s", "report.html").mkdir()
    said = cli_report.conclude(Path("s"), before)
    assert said == ["No report: s/report.html: cannot be written: Is a directory"]
    assert known() == before


def test_a_study_that_cannot_be_read_is_one_line_as_well(run):
    before = known()
    Path("s", "study.db").write_bytes(b"SQLite format 3\0 and no more" * 100)
    (said,) = cli_report.conclude(Path("s"), before)
    assert said.startswith("No report: session ")
    assert "its study is damaged" in said
    assert "\n" not in said


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_session_that_is_not_to_be_written_is_one_line(run):
    Path("s").chmod(0o500)
    code, out, err = run("report", "s", "--format", "md")
    assert (code, out, err.count("\n")) == (2, "", 1)
