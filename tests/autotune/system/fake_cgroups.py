"""Control groups of made-up files in place of this process's own."""

from collections.abc import Callable
from pathlib import Path

import pytest

from autotune.system import cgroup


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, dict[str, str]], Path]:
    """Writes control group files and the membership line of this process; returns their root."""
    root, lines = tmp_path / "fs", tmp_path / "membership"
    monkeypatch.setattr(cgroup, "_ROOT", root)
    monkeypatch.setattr(cgroup, "_MEMBERSHIP", lines)

    def write(membership: str, files: dict[str, str]) -> Path:
        for name, text in files.items():
            file = root / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text + "\n")
        lines.write_text(membership + "\n")
        return root

    return write
