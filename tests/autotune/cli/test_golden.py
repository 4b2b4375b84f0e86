"""The output of commands on recorded sessions, word for word, on a terminal of 100 columns.

After a change run `REGENERATE=1 python -m pytest tests/autotune/cli/test_golden.py`, and read the diff.
"""

import os
import re
import shutil
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from autotune.__main__ import main
from autotune.display import snapshot, view
from autotune.display.console import Screen
from autotune.judging.decisions.history import History
from autotune.storage.store import StoredSession
from autotune.workloads import registry
from tests.faults.sessions import KEPT

GOLDEN = Path(__file__).parent / "golden"
COMMANDS = {
    "status-winner": ("drawn", "status"),
    "status-baseline": ("iu_xray", "status"),
    "status-interrupted": ("format-2", "status"),
    "predict": ("drawn", "predict", "--memory", "1GiB,8GiB,24GiB"),
    "export": ("iu_xray", "export"),
}


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """Changes into a directory for the session."""
    monkeypatch.syspath_prepend(str(KEPT))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def is_as_recorded(name, text):
    text = re.sub(r"[\d.]+ [KM]iB on disk", "(size) on disk", text)  # depends on the file system's blocks
    file, text = GOLDEN / f"{name}.txt", "".join(f"{line.rstrip()}\n" for line in text.splitlines())
    if os.environ.get("REGENERATE"):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_prints_the_golden_text(name, capsys):
    session, command, *options = COMMANDS[name]
    shutil.copytree(KEPT / session, session)
    code = main([command, session, *options])
    said = capsys.readouterr()
    is_as_recorded(
        name, f"$ autotune {' '.join((command, session, *options))}\n{said.out}{said.err}exit {code}"
    )


@pytest.mark.parametrize(("name", "session"), [("search-winner", "drawn"), ("search-baseline", "iu_xray")])
def test_a_search_prints_the_golden_text(name, session):
    """Checks its lines in a log, a second apart, and its summary."""
    stored = StoredSession.open(Path(shutil.copytree(KEPT / session, session)))
    trials, seconds = stored.study().trials, iter(range(1000))
    out = Console(width=100, file=StringIO())
    screen = Screen(out, replace(snapshot.take(stored, Path(session)), trials=()), lambda: next(seconds))
    for trial in trials:
        screen.started(replace(trial, outcome=None))
        screen.ended(trial)
    history = History(trials, stored.space())
    for line in view.summary(history, registry.load(stored.space().workload), Path(session)):
        out.print(line, soft_wrap=True, markup=False, highlight=False)
    is_as_recorded(name, out.file.getvalue())
