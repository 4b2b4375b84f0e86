"""The study in its file, read with SQLite alone: Optuna, which wrote it, takes a second to import.

Nothing is written, and a running search is not disturbed.
"""

import json
import math
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
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
# What SQLite says of a disk, a right or another program, and not of what is in the file.
_OF_SURROUNDINGS = {
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_AUTH,
}
_MOST_DIGITS = 25
_STUDY = """SELECT key, value_json FROM study_user_attributes JOIN studies USING (study_id)
            WHERE study_name = ?"""
_TRIALS = """SELECT number, key, value_json FROM trials JOIN studies USING (study_id)
             LEFT JOIN trial_user_attributes USING (trial_id)
             WHERE study_name = ? ORDER BY number"""

_Finite = Annotated[float, Field(allow_inf_nan=False)]


@dataclass(frozen=True)
class Plan:
    """How many trials a search may have, the seconds it may take, and those that it has taken.

    `ended` says that it came to its end, whatever it found; one that is resumed has not.
    """

    trials: int
    time_s: _Finite | None
    spent_s: _Finite = 0.0
    ended: bool = False

    @property
    def left_s(self) -> float | None:
        """What is left of the time, None where there is no limit."""
        return None if self.time_s is None else max(0.0, self.time_s - self.spent_s)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


_PLAN, _TRIAL, _PASSED_OVER = TypeAdapter(Plan), TypeAdapter(Trial), TypeAdapter(list[RejectedSuggestion])


@dataclass(frozen=True)
class Entry:
    """A trial as the study has it."""

    number: int
    user_attrs: Mapping[str, Any]

    @property
    def trial(self) -> Trial | None:
        """The trial, None if it has no configuration: it is another program's. Raises DamagedError."""
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
    """A study as it was when it was read. What is asked of it raises DamagedError if it cannot be read."""

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
    if not file.exists():
        raise KeyError(f"there is no study in {file} yet")
    if wrong := [one.name for one in files_of(file) if not one.is_file()]:
        raise DamagedError(f"{', '.join(wrong)}: must be a regular file")  # SQLite waits for a pipe
    try:
        with closing(_reading(file)) as connection:
            connection.execute("BEGIN")  # both of one moment
            attributes = connection.execute(_STUDY, (NAME,)).fetchall()
            rows = connection.execute(_TRIALS, (NAME,)).fetchall()
            if not rows and not _is_there(connection):
                raise KeyError(f"there is no study in {file} yet")
            (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except UnicodeDecodeError as error:
        raise DamagedError(f"not text: {error.reason}") from None
    except sqlite3.Error as error:
        if _is_half_made(error):
            raise KeyError(f"there is no study in {file} yet") from None
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in _OF_SURROUNDINGS:
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
    """A whole number that arithmetic with floats carries: a spoilt one may have hundreds of digits."""
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def _is_there(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("SELECT 1 FROM studies WHERE study_name = ?", (NAME,)).fetchone())


def _is_half_made(error: sqlite3.Error) -> bool:
    """Whether a study lacks what Optuna would have to write first."""
    is_refused = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_READONLY
    return is_refused or _UNKNOWN_TABLE in str(error)


def files_of(study: Path) -> list[Path]:
    """Returns the study's file, and those that SQLite keeps next to it, if they exist."""
    names = (study.name, *(f"{study.name}-{kind}" for kind in ("wal", "shm", "journal")))
    return [file for name in names if (file := study.with_name(name)).exists()]


def connect(file: Path, how: str) -> sqlite3.Connection:
    uri = f"{file.resolve().as_uri()}?{how}"
    return sqlite3.connect(uri, PATIENCE_S, check_same_thread=False, uri=True)


def _reading(file: Path) -> sqlite3.Connection:
    """Reads what is written ahead, too, which takes a file that writers and readers share.

    Where that cannot be made - the disk is read-only, or full - and nothing is written ahead, there is no
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
