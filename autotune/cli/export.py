"""The command `export`, which writes the winner."""

import sys
from pathlib import Path

from autotune.core.errors import printable
from autotune.sessions import exporting


def export(root: Path, output: Path | None, number: int | None, name: str | None, own: Path | None) -> int:
    """Writes a trial, by default the winner; returns the exit code."""
    done = exporting.export(root, output, number, name, own)
    for line in done.notes:
        print(printable(line), file=sys.stderr)
    print(printable(f"{done.file}: {done.settings}"))
    if done.usage is not None:
        print(printable(done.usage))
    return 0
