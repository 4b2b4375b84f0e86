"""The command `report`, and the report that every search leaves."""

import io
import json
import os
import shutil
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from autotune import __main__ as cli
from autotune.core.trial import Trial
from autotune.sessions import reporting
from autotune.storage import study_file

KEPT = Path(__file__).parents[2] / "fixtures" / "sessions"


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs the command line next to a kept session `s`; returns its exit code and output."""
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
        (["s", "--price-per-hour", "-1"], ["--price-per-hour", "a number from 0", "-1"]),
        (["s", "--price-per-kwh", "nan"], ["--price-per-kwh", "a number from 0", "nan"]),
        (["s", "--price-per-kwh", "dear"], ["--price-per-kwh", "dear"]),
        (["s", "--currency", "EUR"], ["--currency", "--price-per-hour or --price-per-kwh"]),
        (["s", "--format", "json", "-o", "s"], ["s: cannot be written"]),
        ([], ["Missing argument", "session"]),
    ],
)
def test_bad_input_is_one_line(run, arguments, parts):
    code, out, err = run("report", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    for part in parts:
        assert part in err


@pytest.mark.parametrize("form", ["html", "json", "md"])
def test_a_report_is_written_into_its_session_by_default(run, form):
    code, out, err = run("report", "s", "--format", form)
    assert (code, out, err) == (0, f"Report: s/report.{form}\n", "")
    text = Path("s", f"report.{form}").read_text()
    assert run("report", "s", "--format", form, "--output", "mine") == (0, "Report: mine\n", "")
    assert Path("mine").read_text() == text


def test_prices_apply_to_every_format(run):
    prices = ("--price-per-hour", "2.5", "--currency", "EUR", "-o", "-")
    told = json.loads(run("report", "s", "--format", "json", *prices)[1])["answer"]
    assert told["prices"] == {"per_hour": 2.5, "per_kwh": None, "currency": "EUR"}
    assert "No cost: the length of the training is" in told["cautions"][-1]
    for form in ("html", "md"):
        assert "No cost: the length of the training is" in run("report", "s", "--format", form, *prices)[1]


def test_a_cost_is_the_same_in_every_format(run):
    shutil.copytree(KEPT / "iu_xray", "t")
    prices = ("--price-per-hour", "2.5", "--currency", "EUR", "-o", "-")
    told = json.loads(run("report", "t", "--format", "json", *prices)[1])["answer"]
    costs = [told[side]["cost"]["money"]["value"] for side in ("baseline", "best")]
    whole_s = [told[side]["full_training_s"] for side in ("baseline", "best")]
    assert costs == pytest.approx([2.5 * seconds / 3600 for seconds in whole_s])
    page, text = (run("report", "t", "--format", form, *prices)[1] for form in ("html", "md"))
    row = next(line for line in text.splitlines() if line.startswith("| Cost, of the full training"))
    for cost in costs:
        assert f"{cost:.3g} EUR" in page
        assert f"| {cost:.3g} EUR ±" in row


def test_html_is_the_default_format(run):
    assert run("report", "s")[1] == "Report: s/report.html\n"


def test_standard_output_has_the_report_and_nothing_else(run):
    code, out, _ = run("report", "s", "--format", "json", "-o", "-")
    assert code == 0
    assert json.loads(out)["answer"]["verdict"] == "unconfirmed"
    assert not Path("s", "report.json").exists()


@pytest.mark.parametrize("form", ["html", "md"])
def test_standard_output_has_what_a_file_has_whatever_the_terminal_can_show(run, form):
    run("report", "s", "--format", form, "-o", "mine")
    text = Path("mine").read_bytes()
    assert not text.isascii()
    written = io.BytesIO()
    terminal = io.TextIOWrapper(written, encoding="ascii", errors="replace")
    with redirect_stdout(terminal):
        assert cli.main(["report", "s", "--format", form, "-o", "-"]) == 0
    assert written.getvalue() == text


def known():
    return study_file.load_study(Path("s", "study.db")).trials


def test_a_search_leaves_its_report_and_says_where(run):
    assert reporting.conclude(Path("s"), known()) == ["Report: s/report.html"]
    assert "<html" in Path("s", "report.html").read_text()[:1000]


def test_before_the_baseline_has_ended_there_is_no_report(run):
    assert reporting.conclude(Path("s"), []) == []
    assert reporting.conclude(Path("s"), [Trial(0, {})]) == []
    assert not Path("s", "report.html").exists()


def test_a_report_that_cannot_be_written_is_one_line_and_loses_nothing(run):
    before = known()
    Path("s", "report.html").mkdir()
    said = reporting.conclude(Path("s"), before)
    assert said == ["No report: s/report.html: cannot be written: Is a directory"]
    assert known() == before


def test_a_study_that_cannot_be_read_is_one_line_as_well(run):
    before = known()
    Path("s", "study.db").write_bytes(b"SQLite format 3\0 and no more" * 100)
    (said,) = reporting.conclude(Path("s"), before)
    assert said.startswith("No report: session ")
    assert "its study is damaged" in said
    assert "\n" not in said


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_session_is_one_line(run):
    Path("s").chmod(0o500)
    code, out, err = run("report", "s", "--format", "md")
    assert (code, out, err.count("\n")) == (2, "", 1)
