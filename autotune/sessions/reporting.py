"""Writes the report of a session as one file."""

from collections.abc import Sequence
from pathlib import Path

from autotune.core import files
from autotune.core.errors import InputError
from autotune.core.trial import Trial
from autotune.judging.accounts.costs import Prices
from autotune.reports import markdown, read
from autotune.reports.model import SAMPLES, SessionReport
from autotune.storage.store import StoredSession
from autotune.training import plan
from autotune.trials import failures


def render(root: Path, form: str, samples: int = SAMPLES, prices: Prices | None = None) -> tuple[str, Path]:
    """Returns the report of the session in `root`, and the file for it."""
    if plan.is_training(root):
        rule = "a training has no report: its end prints a verdict, and its trackers have the curves"
        raise InputError(f"{root}: {rule}")
    found, file = read.read(root, samples, prices=prices), StoredSession(root).report_file
    plain = {"json": SessionReport.to_json, "md": markdown.render}
    return plain.get(form, _page)(found), file.with_suffix(f".{form}")


def conclude(session: Path, trials: Sequence[Trial]) -> list[str]:
    """Writes the page of an ended search; returns lines on it, none if the baseline has not ended."""
    if not any(t.number == 0 and t.outcome for t in trials):
        return []
    try:
        page = _page(read.read(session, SAMPLES, is_over=True))
        return [write(StoredSession(session).report_file, page, is_ours=True)]
    except Exception as error:
        fault = str(error) if isinstance(error, InputError) else failures.study_fault(error)
        if fault is None:
            raise
        return [f"No report: {fault}"]  # the results are safe without it


def write(file: Path, text: str, *, is_ours: bool) -> str:
    """Writes a report; `is_ours`: into the session's own file."""
    files.write(file, text, is_ours=is_ours)
    return f"Report: {file}"


def _page(found: SessionReport) -> str:
    from autotune.reports import page  # noqa: PLC0415 - plotly takes a second

    return page.render(found)
