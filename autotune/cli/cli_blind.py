"""Readers who do not know the models: the sheet that they mark, and their answers."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from autotune.cli.cli_options import Readers
from autotune.compare import blind, results
from autotune.compare.results import Written
from autotune.core import files
from autotune.core.errors import InputError, printable
from autotune.core.shell import quoted
from autotune.reports import clinical
from autotune.storage.store import Session


def asked(place: Path, readers: Readers, samples: int) -> bool:
    """Does what is asked of a session's readers; whether its report is not asked for."""
    if readers.blind is not None and readers.marks is not None:
        raise InputError(f"one of --blind and --marks: got {readers.blind} and {readers.marks}")
    if readers.marks is not None:
        print(printable(_take_marks(place, readers.marks)), file=sys.stderr)  # the report may go to stdout
    if readers.blind is not None:
        _write_sheet(place, readers.blind, samples)
    return readers.blind is not None


def _written(session: Session) -> Mapping[str, Sequence[Written]]:
    return results.found(session, session.space().objective).written


def _write_sheet(place: Path, file: Path, samples: int) -> None:
    """Writes so many studies with all that models wrote for them, in an order that reveals no model."""
    from autotune.reports import sheet  # noqa: PLC0415 - as a page, it takes a second

    if not samples:
        raise InputError("--samples: at least 1 study with --blind: got 0")
    session = Session.open(place)
    chosen = clinical.samples(_written(session), samples)
    if not chosen:
        raise InputError(
            f"session {place}: has no reports to be marked: python -m autotune compare {quoted(place)}"
        )
    items = sheet.items(chosen, blind.make_key(session.comparison.blind_key_file))
    files.write(file, sheet.render(items))
    count = sum(len(item.reports) for item in items)
    print(printable(f"Sheet: {file}: {count} reports of {len(items)} studies"))
    print(printable(f"Read the answers: python -m autotune report {quoted(place)} --marks answers.json"))


def _take_marks(place: Path, file: Path) -> str:
    """Keeps a reader's answers in the session, and says how many; raises InputError where none is of it."""
    session = Session.open(place)
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}") from None
    reader, answers = blind.parse(text, file)
    there = blind.wrote(blind.key(session.comparison.blind_key_file), _written(session)).keys()
    gone = len(answers.keys() - there)
    if gone == len(answers):
        raise InputError(f"{file}: none of its {gone} marks is for a report in session {place}")
    before = blind.keep(session.comparison.marks_file, reader, answers)
    changed = sum(before.get(name, answer) != answer for name, answer in answers.items())
    staying = len(before.keys() & there - answers.keys())
    replaced = f"; {changed} earlier marks of that reader are replaced" if changed else ""
    kept = f"; {staying} earlier ones stay" if staying else ""
    left_out = f"; {gone} more are for reports that no longer exist" if gone else ""
    return f"Marks: {len(answers) - gone} of reader {reader}{replaced}{kept}{left_out}"
