"""A session read from Python has the same content as on the command line."""

import json
import shutil
from pathlib import Path

import pytest

import autotune
from autotune.core.errors import InputError
from autotune.space import spaces
from autotune.storage.store import Options
from autotune.storage.store import StoredSession as Files
from tests.autotune.conftest import SPACE

KEPT = Path(__file__).parents[2] / "fixtures" / "sessions"


@pytest.fixture
def session(tmp_path):
    return autotune.open(shutil.copytree(KEPT / "iu_xray", tmp_path / "s"))


@pytest.fixture
def status(session, capsys):
    """Returns the output of `status --json` for the session."""
    from autotune.cli.status import status

    status(session.path, as_json=True)
    return json.loads(capsys.readouterr().out)


def test_its_trials_are_a_table_with_a_column_for_each_knob(session, status):
    trials = session.trials
    assert list(trials.index) == [one["trial"] for one in status["trials"]]
    assert list(trials["status"]) == [one["status"] for one in status["trials"]]
    assert set(status["trials"][0]["config"]) < set(trials.columns)


def test_the_evidence_is_what_the_command_line_shows(session, status):
    evidence = session.evidence
    assert evidence.trial == status["best"]["trial"]
    assert evidence.is_confirmed is (status["verdict"] == "confirmed")
    assert evidence.factor.value == pytest.approx(status["factor"]["value"])
    assert (evidence.rounds, evidence.seeds) == (status["rounds"], status["seeds"])
    assert bool(session.winner) is evidence.is_confirmed
    assert bool(evidence.why_not) is not evidence.is_confirmed


def test_it_is_exported_and_reported_as_by_the_commands(session, tmp_path):
    trial = session.evidence.trial
    assert session.export(tmp_path / "best.yaml", trial=trial).read_text()
    assert session.report().read_text().startswith("<!doctype html>")
    assert json.loads(session.report(tmp_path / "r.json", format="json").read_text())["answer"]


def test_a_notebook_shows_the_answer_and_the_trials_and_escapes_html(session):
    html = session._repr_html_()
    assert "<table" in html
    assert f"Trial {session.evidence.trial} " in html or session.evidence.why_not in html
    hostile = shutil.copytree(session.path, session.path.parent / "<script>alert(1)<")
    assert "<script>" not in autotune.open(hostile)._repr_html_()


def test_a_session_without_trials_says_so_and_none_is_an_error(tmp_path):
    with pytest.raises(InputError, match="there is no session here"):
        autotune.open(tmp_path / "s")
    Files.create(tmp_path / "<b>", spaces.parse(SPACE, "test"), Options(), {})
    shown = autotune.open(tmp_path / "<b>")._repr_html_()
    assert "nothing was run yet" in shown
    assert "<b>:" not in shown
