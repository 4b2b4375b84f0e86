"""A command line is probed from the command line's own words."""

import sys

import pytest

from autotune.core.errors import InputError
from autotune.sessions import probing
from autotune.sessions.requests import Probing

KEY = "made-up-key-0123456789"
SCRIPT = "import os; print('the key is', os.environ['SOME_API_KEY']); raise SystemExit(1)"


def test_a_key_that_a_script_prints_is_not_told(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SOME_API_KEY", KEY)
    with pytest.raises(InputError, match="exit code 1"):
        probing.write([sys.executable, "-c", SCRIPT], Probing(), tmp_path / "space.yaml")
    said = capsys.readouterr().err
    assert "the key is" in said
    assert KEY not in said
