"""A training is probed from its own command line."""

import sys
from dataclasses import replace

import pytest

from autotune.cli.app import app
from autotune.core.errors import InputError
from autotune.sessions import probing
from autotune.sessions.requests import Probing
from tests.autotune.probe import scripts
from tests.autotune.probe.test_durations import result

KEY = "made-up-key-0123456789"
SCRIPT = "import os; print('the key is', os.environ['SOME_API_KEY']); raise SystemExit(1)"
pytestmark = pytest.mark.usefixtures("_without_compiler")


@pytest.mark.long
def test_a_command_line_is_checked_without_writing_anything(tmp_path, monkeypatch, capsys):
    (tmp_path / "train.py").write_text(scripts.ARGPARSE)
    monkeypatch.chdir(tmp_path)
    code = app(["check", "--", sys.executable, "train.py"], standalone_mode=False)
    assert code == 0
    said = capsys.readouterr().err
    assert "score: val_loss in the output" in said
    assert "A training takes about" in said
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


def test_a_key_that_a_script_prints_is_hidden(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SOME_API_KEY", KEY)
    with pytest.raises(InputError, match="exit code 1"):
        probing.write([sys.executable, "-c", SCRIPT], Probing(), tmp_path / "space.yaml")
    said = capsys.readouterr().err
    assert "the key is" in said
    assert KEY not in said


@pytest.mark.parametrize(
    ("trial_samples", "time_s", "said"),
    [
        (None, 3000.0, "A training takes about 1m 40s here: 50m 00s is enough for 30; confirming"),
        (
            None,
            600.0,
            "A training takes about 1m 40s here: 10m 00s is enough for 6, 33m 20s for 20; confirming",
        ),
        (250, 60.0, "here, and a trial 25% of that: 1m 00s is enough for 2, 8m 20s for 20; confirming"),
    ],
)
def test_the_plan_counts_what_fits_into_the_time(trial_samples, time_s, said):
    found = replace(result("epochs", 16, 100.0), samples=1000, trial_samples=trial_samples)
    assert said in probing.plan(found, time_s)


def test_the_plan_says_how_many_trainings_would_pay_for_it():
    said = "At 1.5x the search pays off after 18 trainings, or in one of 30m 00s."
    assert probing.break_even(100.0, 600.0) == said
