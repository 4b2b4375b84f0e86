"""Scripts without knowledge of the tuner, as commands."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autotune.workloads.command.workload import CommandWorkload

SCORE = {"acc": r"acc ([\d.]+)"}


@pytest.fixture
def command(tmp_path: Path) -> Callable[..., CommandWorkload]:
    """Returns the workload of a script with this text, run by `python script.py` and `more` arguments."""

    def make(text: str, more: str = "", **keys: Any) -> CommandWorkload:
        (tmp_path / "script.py").write_text(text)
        values = {"kind": "command", "run": f"python script.py {more}", "quality": SCORE, **keys}
        return CommandWorkload.parse(values, tmp_path)

    return make


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"
