"""The commands that start no trial: status, export, doctor."""

import gc
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from autotune.core import files, units
from autotune.display import advice, draw, events, live, snapshot, view
from autotune.display.snapshot import INTERRUPTED, RUNNING, Snapshot
from autotune.export import formats
from autotune.space.space import Space
from autotune.storage.store import Session
from autotune.system import scratch
from autotune.workloads import registry
from autotune.workloads.base import Workload

SessionArgument = Annotated[Path, typer.Argument(help="the session's directory")]


def opened(root: Path) -> tuple[Session, Space, Workload]:
    """Returns the session in `root`, its search space and its workload, whose code need not exist."""
    session = Session.open(root)
    space = session.space()
    return session, space, registry.named(space.workload)


def status(
    session: SessionArgument,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> int:
    """Show what a session has found so far, running or not. Example: autotune status runs/iu"""
    scratch.end_orphans()
    gc.disable()  # collecting among thousands of live trials would take a quarter of the time
    try:
        _show(session, as_json=as_json)
    finally:
        gc.enable()
    return 0


def _show(session: Path, *, as_json: bool) -> None:
    known, _, workload = opened(session)
    shown = snapshot.take(known, session)
    if as_json:
        print(events.line(events.status(shown)))
        return
    console = Console()
    console.print(draw.whole(shown))
    for line in [
        "",
        _counts(shown, known),
        *view.summary(shown.history, workload, session, go_on(shown)),
    ]:
        live.say(console, line)


def go_on(shown: Snapshot) -> str:
    """Returns the command that continues a search; empty while it runs."""
    if shown.state == RUNNING:
        return ""
    return advice.go_on(shown.history, shown.plan, Path(shown.session))


def _counts(shown: Snapshot, session: Session) -> str:
    """Returns outcome counts, the number of rejected suggestions, and disk usage, as a line."""
    count = shown.passed_over
    passed = f"; {count} suggestion{'s' * (count > 1)} not started" if count else ""
    state = RUNNING if shown.state == RUNNING else INTERRUPTED
    on_disk = units.format_bytes(files.room_bytes(session.root))
    return f"{view.counts(shown.everything, state)}{passed}; {on_disk} on disk"


def export(
    session: SessionArgument,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="file to write; default: best, with the format's suffix"),
    ] = None,
    trial: Annotated[int | None, typer.Option(min=0, help="trial to export; default: the winner")] = None,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            help=f"{', '.join(formats.FORMATS)}; default: the workload's own",
        ),
    ] = None,
    patch: Annotated[
        Path | None, typer.Option(help="your own YAML or JSON file: the winner goes into a copy of it")
    ] = None,
) -> int:
    """Write the winner as the trainer's config. Example: autotune export runs/iu -o best.yaml"""
    from autotune.cli import cli_export  # noqa: PLC0415 - `status` needs none of it

    return cli_export.export(session, output, trial, format_, patch)


def doctor() -> int:
    """Say what this machine can run, and what to do about the rest. Example: autotune doctor"""
    from autotune.cli import doctor as doctors  # noqa: PLC0415 - queries the machine, which `status` does not

    scratch.end_orphans()
    Console().print(doctors.table(doctors.examine()))
    return 0
