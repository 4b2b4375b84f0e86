"""Reads the study's file with SQLite alone, because Optuna takes a second to import; writes nothing."""

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import Field, TypeAdapter

from autotune.core import units
from autotune.core.errors import DamagedError, printable
from autotune.core.settings import EFFECTIVE_BATCH, LENGTH, PREFETCH, WORKERS
from autotune.core.trial import RejectedSuggestion, Trial

# User attributes of a trial, and of the study.
CONFIG, REPEAT, ABLATION_OF, RACE = "config", "repeat", "ablation_of", "race"
PASSED_OVER, SHARED = "passed_over", "shared"
PLAN, SESSION = "plan", "session"
NAME = "autotune"
PATIENCE_S = 60.0  # wait for another program that writes the study, such as a dashboard
# SQLite's codes for invalid contents, as opposed to a disk, permission or locking error; 0: no code.
_OF_CONTENTS = {0, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_MOST_DIGITS = 25
_COUNTS = {*EFFECTIVE_BATCH, LENGTH, WORKERS, PREFETCH}  # the tuner computes with them
_STUDY = "SELECT study_id FROM studies WHERE study_name = ?"
_ATTRIBUTES = "SELECT key, value_json FROM study_user_attributes WHERE study_id = ?"
_TRIALS = """SELECT number, key, value_json FROM trials LEFT JOIN trial_user_attributes USING (trial_id)
             WHERE study_id = ? ORDER BY number"""

_T = TypeVar("_T")
_Duration = Annotated[float, Field(le=units.LONGEST_S, allow_inf_nan=False)]


@dataclass(frozen=True)
class SearchPlan:
    trials: int  # maximum number to begin
    time_s: _Duration | None  # maximum duration; None: no limit
    spent_s: _Duration = 0.0
    ended: bool = False  # the search is over, with or without a winner; False again once it is resumed

    @property
    def left_s(self) -> float | None:
        return None if self.time_s is None else max(0.0, self.time_s - self.spent_s)


_PLAN, _TRIAL = TypeAdapter(SearchPlan), TypeAdapter(Trial)
_PASSED_OVER = TypeAdapter(list[RejectedSuggestion])


def _validated(kind: TypeAdapter[_T], value: object, problem: str) -> _T:
    try:
        return kind.validate_python(value)
    except ValueError:
        raise DamagedError(problem) from None


@dataclass(frozen=True)
class StudyEntry:
    number: int
    user_attrs: Mapping[str, Any]

    @property
    def trial(self) -> Trial | None:
        """The trial, None if another program added it; raises DamagedError if it is unreadable."""
        values = self.user_attrs
        if CONFIG not in values:
            return None
        fields = {"measurement": {"shared": values.get(SHARED, False)}, **values, "number": self.number}
        trial = _validated(_TRIAL, fields, f"trial {self.number} is not readable")
        if not abs(trial.seconds) <= units.LONGEST_S:
            raise DamagedError(f"trial {self.number} is not readable: its seconds are no duration")
        for name in _COUNTS & trial.config.keys():
            if trial.config[name] is not None and units.number(trial.config[name]) is None:
                raise DamagedError(f"trial {self.number} is not readable: {name} is no number")
        return trial

    @property
    def passed_over(self) -> list[RejectedSuggestion]:
        """The suggestions rejected before the trial began; raises DamagedError if they are unreadable."""
        passed = self.user_attrs.get(PASSED_OVER, ())
        problem = f"trial {self.number}: what was passed over before it is not readable"
        return _validated(_PASSED_OVER, passed, problem)


@dataclass(frozen=True)
class StudyFile:
    """A snapshot of a study. Its properties raise DamagedError if they are unreadable."""

    user_attrs: Mapping[str, Any]
    entries: tuple[StudyEntry, ...]
    damage: str = ""  # the error that SQLite finds in its pages, even if all trials are readable

    @property
    def key(self) -> str:
        """The key of the study's session, "" if it is not recorded."""
        return str(self.user_attrs.get(SESSION, ""))

    @cached_property
    def plan(self) -> SearchPlan | None:
        if PLAN not in self.user_attrs:
            return None
        return _validated(_PLAN, self.user_attrs[PLAN], "its plan is not one that this version reads")

    @cached_property
    def trials(self) -> list[Trial]:
        """Every started trial in order, repeats and ablation steps included."""
        return [trial for entry in self.entries if (trial := entry.trial) is not None]

    @cached_property
    def passed_over(self) -> list[RejectedSuggestion]:
        return [one for entry in self.entries for one in entry.passed_over]

    def require_readable(self) -> None:
        if self.damage:
            raise DamagedError(self.damage)
        _ = self.plan, self.trials, self.passed_over  # each raises if it is damaged


def load_study(file: Path) -> StudyFile:
    """Returns the study in `file`; raises KeyError until it is created, DamagedError if it is unreadable.

    SQLite checks all pages, because a torn copy may be damaged in pages that only Optuna reads. Disk,
    permission and locking errors are raised as they are, as sqlite3.Error.
    """
    nothing = KeyError(f"there is no study in {file} yet")
    if not file.exists():
        raise nothing
    if wrong := [one.name for one in files_of(file) if not one.is_file()]:
        raise DamagedError(f"{', '.join(wrong)}: must be a regular file")  # SQLite would wait for a pipe
    try:
        with closing(_connect_reading(file)) as connection:
            connection.execute("BEGIN")  # for a consistent snapshot
            if (study := connection.execute(_STUDY, (NAME,)).fetchone()) is None:
                raise nothing
            attributes = connection.execute(_ATTRIBUTES, study).fetchall()
            rows = connection.execute(_TRIALS, study).fetchall()
            (check,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except UnicodeDecodeError as error:
        raise DamagedError(f"not text: {error.reason}") from None
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the upper bits are the extended code
        if code == sqlite3.SQLITE_READONLY or "no such table" in str(error):  # Optuna is still creating it
            raise nothing from None
        if code not in _OF_CONTENTS:
            raise
        raise DamagedError(str(error)) from None
    entries: dict[int, dict[str, Any]] = {}
    for number, key, value in rows:
        entries.setdefault(number, {}).update({} if key is None else {key: _value(key, value)})
    if [*entries] != [*range(len(entries))]:
        raise DamagedError("its trials are not numbered from 0 on, without a gap")
    return StudyFile(
        user_attrs={key: _value(key, value) for key, value in attributes},
        entries=tuple(StudyEntry(number, values) for number, values in entries.items()),
        damage="" if check == "ok" else " ".join(check.split()),
    )


def _value(key: str, text: str) -> Any:
    try:
        return json.loads(text, parse_int=_parse_int)
    except (TypeError, ValueError, RecursionError):
        raise DamagedError(f"its attribute {printable(key)} is no JSON that is read here") from None


def _parse_int(digits: str) -> int:
    """Parses an integer that fits into a float, since a damaged one may have hundreds of digits."""
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def files_of(study: Path) -> list[Path]:
    """Returns the study's file and SQLite's files next to it, if they exist."""
    names = (study.name, *(f"{study.name}-{kind}" for kind in ("wal", "shm", "journal")))
    return [file for name in names if (file := study.with_name(name)).exists()]


def connect(file: Path, how: str) -> sqlite3.Connection:
    uri = f"{file.resolve().as_uri()}?{how}"
    return sqlite3.connect(uri, PATIENCE_S, check_same_thread=False, uri=True)


def _connect_reading(file: Path) -> sqlite3.Connection:
    """Connects for reading, the write-ahead log included, which needs a file shared with writers."""
    connection = connect(file, "mode=ro")
    try:
        connection.execute("PRAGMA schema_version")
    except sqlite3.OperationalError:
        # On a read-only or full disk that file cannot be created. If the log is empty, there is no writer.
        ahead = file.with_name(f"{file.name}-wal")
        connection.close()
        if ahead.exists() and ahead.stat().st_size:
            raise
        return connect(file, "mode=ro&immutable=1")
    return connection
