"""The answers of blind readers: the JSON files that a sheet saves.

A sheet identifies a report by a digest of the study and the text, which reveals no more about the model than
the text does. Two models that wrote the same text share one report.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, StringConstraints, ValidationError

from r2gen.errors import InputError

Mark = Literal["correct", "minor error", "major error"]
CORRECT, _, MAJOR = MARKS = get_args(Mark)
FILES = "answers*.json"
FORMAT = 1
_ID_DIGITS = 16


class Answer(BaseModel):
    """A reader's answer on a report. Either part may be empty."""

    mark: Mark | Literal[""] = ""
    note: Annotated[str, StringConstraints(max_length=10_000)] = ""


class _File(BaseModel):
    format: Literal[1]
    reader: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]
    marks: dict[str, Answer]  # by the id of the report


def id_of(study: str, report: str) -> str:
    """Returns the id of a report in a sheet."""
    return hashlib.sha256(json.dumps([study, report]).encode()).hexdigest()[:_ID_DIGITS]


def read(place: Path) -> dict[str, Mapping[str, Answer]]:
    """Returns the answers in the `FILES` of `place`, by reader and report id.

    If a reader has several files, the last by name that answers on a report counts. Raises InputError if a
    file cannot be read or is invalid.
    """
    found: dict[str, Mapping[str, Answer]] = {}
    for file in sorted(place.glob(FILES)):
        try:
            given = _File.model_validate_json(file.read_bytes())
        except OSError as error:
            raise InputError(f"{file}: cannot be read: {error.strerror}") from None
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise InputError(f"{file}: must be as a sheet saves it: {where}: {first['msg']}") from None
        found[given.reader] = {**found.get(given.reader, {}), **given.marks}
    return found
