"""The command `status`, which shows what a session has found so far."""

import gc
from pathlib import Path

from rich.console import Console

from autotune.core import files, units
from autotune.display import draw, events, live, snapshot, view
from autotune.display.snapshot import INTERRUPTED, RUNNING, Snapshot
from autotune.storage.store import StoredSession
from autotune.system import scratch
from autotune.workloads import registry


def status(session: Path, *, as_json: bool = False) -> int:
    """Prints the state of a session, running or not; returns the exit code."""
    scratch.end_orphans()
    gc.disable()  # collecting among thousands of live trials would take a quarter of the time
    try:
        _show(session, as_json=as_json)
    finally:
        gc.enable()
    return 0


def _show(session: Path, *, as_json: bool) -> None:
    known = StoredSession.open(session)
    shown = snapshot.take(known, session)
    if as_json:
        print(events.line(events.status(shown)))
        return
    console, workload = Console(), registry.named(shown.space.workload)
    console.print(draw.full_picture(shown))
    lines = view.summary(shown.history, workload, session, shown.go_on)
    for line in ["", _counts(shown, known), *lines]:
        live.say(console, line)


def _counts(shown: Snapshot, session: StoredSession) -> str:
    count = len(shown.passed_over)
    passed = f"; {count} suggestion{'s' * (count > 1)} skipped" if count else ""
    state = RUNNING if shown.state == RUNNING else INTERRUPTED
    on_disk = units.format_bytes(files.disk_usage_bytes(session.root))
    return f"{view.counts(shown.history.trials, state)}{passed}; {on_disk} on disk"
