"""The command that shows a session in one file: report."""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from autotune.cli import prepare
from autotune.cli.cli_options import Readers
from autotune.compare import blind, results
from autotune.compare.results import Written
from autotune.core import files
from autotune.core.errors import InputError, printable
from autotune.core.shell import quoted
from autotune.core.trial import Trial
from autotune.reports import as_json, clinical, markdown, read
from autotune.reports.model import FORMATS, SAMPLES, Report
from autotune.storage.store import Session
from autotune.trials import failures

_STDOUT = Path("-")
_NO_READERS = Readers()


def report(
    session: Path, form: str, output: Path | None, samples: int, readers: Readers = _NO_READERS
) -> int:
    """Writes the report of a session in one of the formats, or a sheet for blind readers; the exit code."""
    prepare.one_of("--format", form, FORMATS)
    if readers.blind is not None and readers.marks is not None:
        raise InputError(f"one of --blind and --marks: got {readers.blind} and {readers.marks}")
    if readers.blind is not None:
        return _write_sheet(session, readers.blind, samples)
    if readers.marks is not None:
        told = _take_marks(session, readers.marks)
        print(printable(told), file=sys.stderr if output == _STDOUT else sys.stdout)
    text = _RENDER[form](read.read(session, samples))
    if output == _STDOUT:
        sys.stdout.write(text)
    else:
        print(printable(_write(output or Session(session).report_file.with_suffix(f".{form}"), text)))
    return 0


def _written(session: Session) -> Mapping[str, Sequence[Written]]:
    return results.found(session, session.space().objective).written


def _write_sheet(place: Path, file: Path, samples: int) -> int:
    """Writes so many studies with all that models wrote for them, in an order that tells no model."""
    from autotune.reports import sheet  # noqa: PLC0415 - as a page, it takes a second

    session = Session.open(place)
    chosen = clinical.samples(_written(session), samples)
    if not chosen:
        raise InputError(
            f"session {place}: has no reports to be marked: python -m autotune compare {quoted(place)}"
        )
    items = sheet.items(chosen, blind.make_key(session.blind_key_file))
    files.write(file, sheet.render(items))
    count = sum(len(item.reports) for item in items)
    print(printable(f"Sheet: {file}: {count} reports of {len(items)} studies"))
    print(printable(f"Read the answers: python -m autotune report {quoted(place)} --marks answers.json"))
    return 0


def _take_marks(place: Path, file: Path) -> str:
    """Keeps a reader's answers in the session, and says how many; raises InputError where none is of it."""
    session = Session.open(place)
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}") from None
    reader, answers = blind.parse(text, file)
    there = blind.wrote(blind.key(session.blind_key_file), _written(session)).keys()
    gone = len(answers.keys() - there)
    if gone == len(answers):
        raise InputError(f"{file}: none of its {gone} marks is of a report that is in session {place}")
    blind.keep(session.marks_file, reader, answers)
    left_out = f"; {gone} more are of reports that are no longer there" if gone else ""
    return f"Marks: {len(answers) - gone} of reader {reader}{left_out}"


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
