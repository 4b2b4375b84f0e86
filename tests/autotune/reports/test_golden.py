"""The Markdown of recorded sessions, word for word.

After a change run `REGENERATE=1 python -m pytest tests/autotune/reports/test_golden.py`, and read the diff.
"""

import os
import shutil
from pathlib import Path

import pytest

from autotune.reports import markdown, read

from . import handmade

KEPT = Path(__file__).parents[2] / "fixtures" / "sessions"
GOLDEN = Path(__file__).parent / "golden"


def session(name):
    shutil.copytree(KEPT / name, name)
    return read.read(Path(name), 5)


REPORTS = {
    "winner": lambda: session("drawn"),
    "baseline": lambda: session("iu_xray"),
    "interrupted": lambda: session("format-2"),
    "compared": handmade.rich,
    "begun": handmade.bare,
}


@pytest.mark.parametrize("name", REPORTS)
def test_the_markdown_of_a_report_is_unchanged(name, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(KEPT))
    monkeypatch.chdir(tmp_path)
    file, text = GOLDEN / f"{name}.md", markdown.render(REPORTS[name]())
    if os.environ.get("REGENERATE"):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")
