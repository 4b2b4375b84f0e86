"""The command `status`, which shows what a session has found so far."""

import gc
from pathlib import Path

from rich.console import Console

from autotune.core import files, units
from autotune.display import draw, events, live, snapshot, view, words
from autotune.display.snapshot import INTERRUPTED, RUNNING, Snapshot
from autotune.storage.store import StoredSession
from autotune.system import scratch
from autotune.workloads import registry


def status(session: Path, *, as_json: bool = False) -> int:
    scratch.end_orphans()
    gc.disable()  # collecting among thousands of live trials would take a quarter of the time
    try:
        known = StoredSession.open(session)
        shown = snapshot.take(known, session)
        if as_json:
            print(events.line(events.status(shown)))
        else:
            _show(shown, known, session)
    finally:
        gc.enable()
    return 0


def _show(shown: Snapshot, known: StoredSession, session: Path) -> None:
    console, workload = Console(), registry.named(shown.space.workload)
    console.print(draw.full_picture(shown))
    state = RUNNING if shown.state == RUNNING else INTERRUPTED
    count = len(shown.passed_over)
    passed = f"; {words.plural(count, 'suggestion')} skipped" if count else ""
    on_disk = units.format_bytes(files.disk_usage_bytes(known.root))
    lines = view.summary(shown.history, workload, session, shown.go_on)
    for line in ["", f"{view.counts(shown.history.trials, state)}{passed}; {on_disk} on disk", *lines]:
        live.say(console, line)
