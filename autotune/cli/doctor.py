"""The command `doctor`, which says what this machine can run."""

from rich.console import Console

from autotune.doctor.examine import examine, table
from autotune.system import scratch


def doctor() -> int:
    """Prints what this machine can run, and what to do about the rest; returns the exit code."""
    scratch.end_orphans()
    Console().print(table(examine()))
    return 0
