"""The command that shows a session in one file: report."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from autotune.cli import prepare
from autotune.core import files
from autotune.core.errors import InputError, printable
from autotune.core.trial import Trial
from autotune.reports import as_json, markdown, read
from autotune.reports.model import FORMATS, SAMPLES, Report
from autotune.storage.store import Session
from autotune.trials import failures

_STDOUT = Path("-")


def report(session: Path, form: str, output: Path | None, samples: int) -> int:
    """Writes the report of a session in one of the formats; the exit code."""
    prepare.one_of("--format", form, FORMATS)
    text = _RENDER[form](read.read(session, samples))
    if output == _STDOUT:
        sys.stdout.write(text)
    else:
        print(printable(_write(output or Session(session).report_file.with_suffix(f".{form}"), text)))
    return 0


def conclude(session: Path, trials: Sequence[Trial]) -> list[str]:
    """Writes the page of a search that has come to its end, once its baseline has; what is to be said of it.

    Where that cannot be done it is said, and no more: nothing that was found is lost by it.
    """
    if not any(t.number == 0 and t.outcome for t in trials):
        return []
    try:
        return [_write(Session(session).report_file, _page(read.read(session, SAMPLES, is_over=True)))]
    except Exception as error:
        fault = str(error) if isinstance(error, InputError) else failures.study_fault(error)
        if fault is None:
            raise
        return [f"No report: {fault}"]


def _write(file: Path, text: str) -> str:
    files.write(file, text)
    return f"Report: {file}"


def _page(found: Report) -> str:
    from autotune.reports import page  # noqa: PLC0415 - plotly takes a second

    return page.render(found)


_RENDER: dict[str, Callable[[Report], str]] = {
    "html": _page,
    "json": as_json.render,
    "md": markdown.render,
}
