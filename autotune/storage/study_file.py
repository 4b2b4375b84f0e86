"""The study in its file, read with SQLite alone: Optuna, which wrote it, takes a second to import.

Nothing is written, and a running search is not disturbed.
"""

import json
import math
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from autotune.core.errors import DamagedError, printable
from autotune.core.rejected_suggestion import RejectedSuggestion
from autotune.core.trial import Trial

# User attributes of a trial, and of the study.
CONFIG, REPEAT, ABLATION_OF, RACE = "config", "repeat", "ablation_of", "race"
PASSED_OVER, SHARED = "passed_over", "shared"
PLAN, SESSION = "plan", "session"
NAME = "autotune"
PATIENCE_S = 60.0  # with another program that writes the study: a dashboard
_UNKNOWN_TABLE = "no such table"
# What SQLite says of the contents of a file, and not of a disk, a right or another program; 0: no code.
_OF_CONTENTS = {0, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_MOST_DIGITS = 25
_STUDY = "SELECT study_id FROM studies WHERE study_name = ?"
_ATTRIBUTES = "SELECT key, value_json FROM study_user_attributes WHERE study_id = ?"
_TRIALS = """SELECT number, key, value_json FROM trials LEFT JOIN trial_user_attributes USING (trial_id)
             WHERE study_id = ? ORDER BY number"""

_Finite = Annotated[float, Field(allow_inf_nan=False)]


@dataclass(frozen=True)
class Plan:
    """The budget of a search, and how much of it is spent."""

    trials: int  # the most that it may begin
    time_s: _Finite | None  # the most that it may take; None: no limit
    spent_s: _Finite = 0.0
    ended: bool = False  # it came to its end, with a winner or without; False again once it is resumed

    @property
    def left_s(self) -> float | None:
        """The time that is left, None without a limit."""
        return None if self.time_s is None else max(0.0, self.time_s - self.spent_s)


_PLAN, _TRIAL, _PASSED_OVER = TypeAdapter(Plan), TypeAdapter(Trial), TypeAdapter(list[RejectedSuggestion])


@dataclass(frozen=True)
class Entry:
    """A trial as the study has it."""

    number: int
    user_attrs: Mapping[str, Any]

    @property
    def trial(self) -> Trial | None:
        """The trial, None if another program has added it; raises DamagedError if it cannot be read."""
        values = self.user_attrs
        if CONFIG not in values:
            return None
        known = {"measurement": {"shared": values.get(SHARED, False)}, **values, "number": self.number}
        try:
            found = _TRIAL.validate_python(known)
        except ValueError:
            found = None
        if found is None or not math.isfinite(found.seconds):
            raise DamagedError(f"trial {self.number} is not readable")
        return found

    @property
    def passed_over(self) -> list[RejectedSuggestion]:
        """The suggestions that were passed over before the trial was begun; raises DamagedError."""
        try:
            return _PASSED_OVER.validate_python(self.user_attrs.get(PASSED_OVER, ()))
        except ValueError:
            raise DamagedError(
                f"trial {self.number}: what was passed over before it is not readable"
            ) from None


@dataclass(frozen=True)
class StudyFile:
    """A study as it was when it was read. Its properties raise DamagedError if they cannot be read."""

    user_attrs: Mapping[str, Any]
    entries: tuple[Entry, ...]
    damage: str = ""  # what SQLite finds wrong in its pages, whatever can be read of them

    @property
    def key(self) -> str:
        """The key of the session that the study is of, empty if it does not say."""
        return str(self.user_attrs.get(SESSION, ""))

    @cached_property
    def plan(self) -> Plan | None:
        """The plan of the search, None before it has one."""
        if PLAN not in self.user_attrs:
            return None
        try:
            return _PLAN.validate_python(self.user_attrs[PLAN])
        except ValueError:
            raise DamagedError("its plan is not one that this version reads") from None

    @cached_property
    def trials(self) -> list[Trial]:
        """Every trial that was started, in order, repeats and ablation steps included."""
        return [trial for entry in self.entries if (trial := entry.trial) is not None]

    @cached_property
    def passed_over(self) -> list[RejectedSuggestion]:
        """The suggestions that were not worth starting, with the reason of each."""
        return [one for entry in self.entries for one in entry.passed_over]

    def require_readable(self) -> None:
        """Raises DamagedError if something in the study is damaged."""
        if self.damage:
            raise DamagedError(self.damage)
        _ = self.plan, self.trials, self.passed_over  # read once, and kept


def load_study(file: Path) -> StudyFile:
    """Returns the study in `file`; raises KeyError until it is made, and DamagedError if it cannot be read.

    SQLite checks all pages: a torn copy may be damaged in pages that only Optuna reads.
    What SQLite cannot do for a disk, a right or another program stays an sqlite3.Error.
    """
    nothing = KeyError(f"there is no study in {file} yet")
    if not file.exists():
        raise nothing
    if wrong := [one.name for one in files_of(file) if not one.is_file()]:
        raise DamagedError(f"{', '.join(wrong)}: must be a regular file")  # SQLite waits for a pipe
    try:
        with closing(_reading(file)) as connection:
            connection.execute("BEGIN")  # all of one moment
            if (study := connection.execute(_STUDY, (NAME,)).fetchone()) is None:
                raise nothing
            attributes = connection.execute(_ATTRIBUTES, study).fetchall()
            rows = connection.execute(_TRIALS, study).fetchall()
            (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except UnicodeDecodeError as error:
        raise DamagedError(f"not text: {error.reason}") from None
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the upper bits are the extended code
        if code == sqlite3.SQLITE_READONLY or _UNKNOWN_TABLE in str(error):  # Optuna has not finished it
            raise nothing from None
        if code not in _OF_CONTENTS:
            raise
        raise DamagedError(str(error)) from None
    entries: dict[int, dict[str, Any]] = {}
    for number, key, value in rows:
        entries.setdefault(number, {}).update({} if key is None else {key: _value(key, value)})
    if list(entries) != list(range(len(entries))):
        raise DamagedError("its trials are not numbered from 0 on, without a gap")
    return StudyFile(
        user_attrs={key: _value(key, value) for key, value in attributes},
        entries=tuple(Entry(number, values) for number, values in entries.items()),
        damage="" if found == "ok" else " ".join(found.split()),
    )


def _value(key: str, text: str) -> Any:
    try:
        return json.loads(text, parse_int=_whole)
    except (TypeError, ValueError, RecursionError):
        raise DamagedError(f"its attribute {printable(key)} is no JSON that is read here") from None


def _whole(digits: str) -> int:
    """Returns a number that fits into a float: a spoilt one may have hundreds of digits."""
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def files_of(study: Path) -> list[Path]:
    """Returns the study's file, and those that SQLite keeps next to it, if they exist."""
    names = (study.name, *(f"{study.name}-{kind}" for kind in ("wal", "shm", "journal")))
    return [file for name in names if (file := study.with_name(name)).exists()]


def connect(file: Path, how: str) -> sqlite3.Connection:
    uri = f"{file.resolve().as_uri()}?{how}"
    return sqlite3.connect(uri, PATIENCE_S, check_same_thread=False, uri=True)


def _reading(file: Path) -> sqlite3.Connection:
    """Reads what is written ahead, too, which takes a file that writers and readers share.

    If that cannot be made, because the disk is read-only or full, and nothing is written ahead, there is no
    other process to share it with.
    """
    connection = connect(file, "mode=ro")
    try:
        connection.execute("PRAGMA schema_version")
    except sqlite3.OperationalError:
        ahead = file.with_name(f"{file.name}-wal")
        connection.close()
        if ahead.exists() and ahead.stat().st_size:
            raise
        return connect(file, "mode=ro&immutable=1")
    return connection
