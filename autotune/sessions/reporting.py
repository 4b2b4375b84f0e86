"""Writes the report of a session or of a training as one file."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from autotune.core import files
from autotune.core.errors import InputError
from autotune.core.trial import Trial
from autotune.judging.accounts.costs import Prices
from autotune.reports import as_json, markdown, read
from autotune.reports.model import SAMPLES, SessionReport
from autotune.reports.training import read as training
from autotune.reports.training import wording
from autotune.reports.training.model import TrainingReport
from autotune.storage.store import StoredSession
from autotune.storage.trial_dir import TrainingDir
from autotune.training import plan
from autotune.trials import failures


def render(root: Path, form: str, samples: int = SAMPLES, prices: Prices | None = None) -> tuple[str, Path]:
    """Returns the report of the session or training in `root`, and the file for it.

    Raises InputError if there are prices for a training.
    """
    if plan.is_training(root):
        if prices is not None:
            raise InputError(f"--price-per-hour, --price-per-kwh: go with a session: {root} is a training")
        found: SessionReport | TrainingReport = training.read(root)
        file = TrainingDir(root).report_file
    else:
        found, file = read.read(root, samples, prices=prices), StoredSession(root).report_file
    return _RENDER[form](found), file.with_suffix(f".{form}")


def conclude_training(place: TrainingDir) -> Iterator[str]:
    """Writes the page of an ended training; yields lines with its verdict and the page's path."""
    try:
        found = training.read(place.root, is_over=True)
        yield from wording.terminal_lines(found)
        yield write(place.report_file, _page(found))
    except InputError as error:
        yield f"No report: {error}"


def conclude(session: Path, trials: Sequence[Trial]) -> list[str]:
    """Writes the page of an ended search; returns lines on it, none if the baseline has not ended.

    A known fault becomes a line, since the results are safe without the page.
    """
    if not any(t.number == 0 and t.outcome for t in trials):
        return []
    try:
        return [write(StoredSession(session).report_file, _page(read.read(session, SAMPLES, is_over=True)))]
    except Exception as error:
        fault = str(error) if isinstance(error, InputError) else failures.study_fault(error)
        if fault is None:
            raise
        return [f"No report: {fault}"]


def write(file: Path, text: str) -> str:
    """Writes a report; returns a line that names its file."""
    files.write(file, text)
    return f"Report: {file}"


def _page(found: SessionReport | TrainingReport) -> str:
    from autotune.reports import page  # noqa: PLC0415 - plotly takes a second

    return page.render(found)


_RENDER: dict[str, Callable[[SessionReport | TrainingReport], str]] = {
    "html": _page,
    "json": as_json.render,
    "md": markdown.render,
}
