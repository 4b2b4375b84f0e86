"""The command `report`, which shows a session in one file."""

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from autotune.cli import option_values
from autotune.cli.cli_options import Priced
from autotune.core import files
from autotune.core.errors import InputError, printable
from autotune.core.trial import Trial
from autotune.judging.accounts.costs import Prices
from autotune.reports import as_json, markdown, read
from autotune.reports.model import FORMATS, SAMPLES, Report
from autotune.reports.training import read as training
from autotune.reports.training import wording
from autotune.reports.training.model import TrainingReport
from autotune.storage.store import Session
from autotune.storage.trial_dir import TrainingDir
from autotune.training import plan
from autotune.trials import failures

_STDOUT = Path("-")


def report(session: Path, form: str, output: Path | None, samples: int, prices: Prices | None = None) -> int:
    """Writes the report of a session or training in a format; returns the exit code."""
    option_values.one_of("--format", form, FORMATS)
    if plan.is_training(session):
        if prices is not None:
            raise InputError(f"--price-per-hour, --price-per-kwh: go with a session: {session} is a training")
        found: Report | TrainingReport = training.read(session)
        file = TrainingDir(session).report_file
    else:
        found, file = read.read(session, samples, prices=prices), Session(session).report_file
    text = _RENDER[form](found)
    if output == _STDOUT:
        files.write_to_stdout(text)
    else:
        print(printable(_write(output or file.with_suffix(f".{form}"), text)))
    return 0


def conclude_training(place: TrainingDir) -> Iterator[str]:
    """Writes the page of a training that is over; yields its verdict and the page's path as lines."""
    try:
        found = training.read(place.root, is_over=True)
        yield from wording.printed(found)
        yield _write(place.report_file, _page(found))
    except InputError as error:
        yield f"No report: {error}"


def prices(said: Priced) -> Prices | None:
    """Returns the prices, None if not given; raises InputError for invalid ones."""
    per_hour, per_kwh, currency = said.price_per_hour, said.price_per_kwh, said.currency
    for option, price in (("--price-per-hour", per_hour), ("--price-per-kwh", per_kwh)):
        if price is not None and not (math.isfinite(price) and price >= 0):
            raise InputError(f"{option}: a number from 0: got {price:g}")
    if per_hour is None and per_kwh is None:
        if currency:
            raise InputError("--currency: goes with --price-per-hour or --price-per-kwh: got neither")
        return None
    return Prices(per_hour, per_kwh, currency)


def conclude(session: Path, trials: Sequence[Trial]) -> list[str]:
    """Writes the page of an ended search; returns lines on it, none if the baseline has not ended.

    A known fault becomes a line, since the results are safe without the page.
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


def _page(found: Report | TrainingReport) -> str:
    from autotune.reports import page  # noqa: PLC0415 - plotly takes a second

    return page.render(found)


_RENDER: dict[str, Callable[[Report | TrainingReport], str]] = {
    "html": _page,
    "json": as_json.render,
    "md": markdown.render,
}
