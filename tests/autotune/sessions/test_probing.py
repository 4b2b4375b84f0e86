"""A training is probed from its own command line."""

import sys

import pytest

from autotune.cli.app import app
from autotune.core.errors import InputError
from autotune.sessions import probing
from autotune.sessions.requests import Probing
from tests.autotune.probe import scripts

KEY = "made-up-key-0123456789"
SCRIPT = "import os; print('the key is', os.environ['SOME_API_KEY']); raise SystemExit(1)"
pytestmark = pytest.mark.usefixtures("_without_compiler")


@pytest.mark.slow
def test_a_command_line_is_checked_without_writing_anything(tmp_path, monkeypatch, capsys):
    (tmp_path / "train.py").write_text(scripts.ARGPARSE)
    monkeypatch.chdir(tmp_path)
    code = app(["check", "--", sys.executable, "train.py"], standalone_mode=False)
    assert code == 0
    assert "score: val_loss in the output" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


def test_a_key_that_a_script_prints_is_hidden(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SOME_API_KEY", KEY)
    with pytest.raises(InputError, match="exit code 1"):
        probing.write([sys.executable, "-c", SCRIPT], Probing(), tmp_path / "space.yaml")
    said = capsys.readouterr().err
    assert "the key is" in said
    assert KEY not in said
