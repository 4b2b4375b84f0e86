"""Reports marked by readers who do not know which model wrote them: the key, and their answers.

A report is known to its readers by an id that cannot be traced to its model without the session's key:
a keyed digest (HMAC-SHA256) of the study and of the text. What two models wrote alike is one report. Marks
of a text that no model has written any more count for nothing.
"""

import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from autotune.compare.results import Written
from autotune.core import files, units
from autotune.core.errors import InputError
from autotune.storage.store import Session

CORRECT, MINOR, MAJOR = "correct", "minor error", "major error"
MARKS = (CORRECT, MINOR, MAJOR)
FORMAT = 1
_ID_DIGITS = 16
_LONGEST_NOTE, _LONGEST_NAME = 10_000, 200  # characters


@dataclass(frozen=True)
class Answer:
    """What a reader says of a report: one of `MARKS`, and a note. Either may be empty."""

    mark: str
    note: str = ""


Answers = Mapping[str, Answer]  # by the id of the report


@dataclass(frozen=True)
class Unblinded:
    """An answer, whose it is, and on what: the report for a `study` that the models `labels` wrote."""

    reader: str
    study: str
    labels: tuple[str, ...]
    answer: Answer


def make_key(file: Path) -> bytes:
    """The session's key, drawn when there is none yet; raises InputError where it cannot be written."""
    if not file.exists():
        files.write(file, json.dumps({"key": secrets.token_hex()}))
    return key(file)


def key(file: Path) -> bytes:
    """The session's key; raises InputError where there is none that can be read."""
    try:
        return bytes.fromhex(json.loads(files.read(file))["key"])
    except FileNotFoundError:
        raise InputError(
            f"{file}: is not there: no sheet for blind readers was made of this session"
        ) from None
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(f"{file}: is not the key of a sheet for blind readers") from None


def id_of(key: bytes, study: str, report: str) -> str:
    """What a report is called in a sheet."""
    told = json.dumps([study, report]).encode()
    return hmac.new(key, told, hashlib.sha256).hexdigest()[:_ID_DIGITS]


def parse(text: str, source: Path) -> tuple[str, dict[str, Answer]]:
    """The reader's name and answers in the JSON that a sheet gives; raises InputError where it is none."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        raise InputError(f"{source}: must be JSON, as a blind sheet saves it") from None
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise InputError(f"{source}: must be the answers of a blind sheet, format {FORMAT}")
    reader, marks = values.get("reader", ""), values.get("marks")
    if not isinstance(reader, str) or not reader.strip() or not isinstance(marks, dict):
        raise InputError(f"{source}: must have a reader, who has a name, and marks by report")
    return reader.strip()[:_LONGEST_NAME], {name: _answer(name, said, source) for name, said in marks.items()}


def _answer(name: str, said: Any, source: Path) -> Answer:
    mark, note = (said.get(part, "") for part in ("mark", "note")) if isinstance(said, dict) else ("", "")
    if not isinstance(note, str) or not (mark in MARKS or (mark == "" and note)):
        raise InputError(
            f"{source}: marks: {units.shown(name)}: one of {', '.join(MARKS)}, or a note, or both: got "
            f"{units.shown(said)}"
        )
    return Answer(mark, note[:_LONGEST_NOTE])


def known(file: Path) -> dict[str, dict[str, Answer]]:
    """The answers that were read in, by reader; raises InputError where they cannot be read."""
    try:
        values = json.loads(files.read(file))
        return {
            reader: {name: Answer(**said) for name, said in answers.items()}
            for reader, answers in values.items()
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{file}: the marks of blind readers cannot be read: {error}") from None


def keep(file: Path, reader: str, answers: Answers) -> Answers:
    """Adds a reader's answers to what is known; those that the same reader had given before.

    Raises InputError where that cannot be read or written.
    """
    told = known(file)
    before = told.get(reader, {})
    told[reader] = {**before, **answers}
    files.write(
        file,
        json.dumps({who: {name: asdict(one) for name, one in said.items()} for who, said in told.items()}),
    )
    return before


def wrote(key: bytes, written: Mapping[str, Sequence[Written]]) -> dict[str, tuple[str, tuple[str, ...]]]:
    """By id, the study of each report there is, and the models by label that wrote it."""
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    for label, reports in written.items():
        for one in reports:
            name = id_of(key, one.id, one.report)
            found[name] = one.id, (*found.get(name, ("", ()))[1], label)
    return found


def unblinded(
    readings: Mapping[str, Answers], key: bytes, written: Mapping[str, Sequence[Written]]
) -> list[Unblinded]:
    """Every answer on a report that is still there."""
    there = wrote(key, written)
    return [
        Unblinded(reader, *there[name], answer)
        for reader, answers in readings.items()
        for name, answer in answers.items()
        if name in there
    ]


def said(session: Session, written: Mapping[str, Sequence[Written]]) -> list[Unblinded]:
    """The answers of all readers on the reports that models of `session` have `written`."""
    readings = known(session.comparison.marks_file)
    return unblinded(readings, key(session.comparison.blind_key_file), written) if readings else []
