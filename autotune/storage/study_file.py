"""The study in its file, read with SQLite alone: Optuna, which wrote it, takes a second to import.

Nothing is written, and a running search is not disturbed.
"""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from autotune.core.trial import Measurement, Outcome, PassedOver, Repeat, Trial

# User attributes of a trial, and of the study.
CONFIG, REPEAT, ABLATION_OF, RACE = "config", "repeat", "way_to", "race"
PASSED_OVER, SHARED = "passed_over", "shared"
PLAN = "plan"
NAME = "autotune"
PATIENCE_S = 60.0  # with another program that writes the study: a dashboard
_SKIPPED = "skipped"  # the status of what was passed over, which format 1 kept as a trial
_UNKNOWN_TABLE = "no such table"

_STUDY = """SELECT key, value_json FROM study_user_attributes JOIN studies USING (study_id)
            WHERE study_name = ?"""
_TRIALS = """SELECT number, key, value_json FROM trials JOIN studies USING (study_id)
             LEFT JOIN trial_user_attributes USING (trial_id)
             WHERE study_name = ? ORDER BY number"""


class Attributes(Protocol):
    """A trial of a study: what is known of it."""

    @property
    def number(self) -> int: ...
    @property
    def user_attrs(self) -> dict[str, Any]: ...


class Study(Protocol):
    """What is read of a study: Optuna's own, or one from its file."""

    @property
    def user_attrs(self) -> dict[str, Any]: ...
    def get_trials(self, deepcopy: bool = True) -> Sequence[Attributes]: ...


@dataclass(frozen=True)
class Entry:
    """A trial as the file has it."""

    number: int
    user_attrs: dict[str, Any]


@dataclass(frozen=True)
class StudyFile:
    """A study as its file had it when it was read."""

    user_attrs: dict[str, Any]
    entries: tuple[Entry, ...]

    def get_trials(self, deepcopy: bool = True) -> Sequence[Entry]:
        del deepcopy
        return self.entries


@dataclass(frozen=True)
class Plan:
    """How many trials a search is to have, the seconds it may take, and those that it has taken.

    `ended` says that it came to its end, whatever it found; one that is gone on with has not.
    """

    trials: int
    time_s: float | None
    spent_s: float = 0.0
    ended: bool = False

    @property
    def left_s(self) -> float | None:
        """What is left of the time, None where there is no limit."""
        return None if self.time_s is None else max(0.0, self.time_s - self.spent_s)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def load_study(file: Path) -> StudyFile:
    """The study in `file`; raises KeyError as long as it is still to be made."""
    if not file.exists():
        raise KeyError(f"there is no study in {file} yet")
    try:
        with closing(_reading(file)) as connection:
            connection.execute("BEGIN")  # both of one moment
            attributes = connection.execute(_STUDY, (NAME,)).fetchall()
            rows = connection.execute(_TRIALS, (NAME,)).fetchall()
            if not rows and not _is_there(connection):
                raise KeyError(f"there is no study in {file} yet")
    except sqlite3.Error as error:
        if _is_half_made(error):
            raise KeyError(f"there is no study in {file} yet") from None
        raise
    entries: dict[int, dict[str, Any]] = {}
    for number, key, value in rows:
        entries.setdefault(number, {}).update({} if key is None else {key: json.loads(value)})
    return StudyFile(
        user_attrs={key: json.loads(value) for key, value in attributes},
        entries=tuple(Entry(number, values) for number, values in entries.items()),
    )


def _is_there(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("SELECT 1 FROM studies WHERE study_name = ?", (NAME,)).fetchone())


def _is_half_made(error: sqlite3.Error) -> bool:
    """Whether a study lacks what Optuna would have to write first."""
    is_refused = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_READONLY
    return is_refused or _UNKNOWN_TABLE in str(error)


def connect(file: Path, how: str) -> sqlite3.Connection:
    uri = f"{file.resolve().as_uri()}?{how}"
    return sqlite3.connect(uri, PATIENCE_S, check_same_thread=False, uri=True)


def _reading(file: Path) -> sqlite3.Connection:
    """Reads what is written ahead, too, which takes a file that writers and readers share.

    Where that cannot be made - the disk is read-only, or full - and nothing is written ahead, there is nobody
    to share it with.
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


def plan(study: Study) -> Plan | None:
    """The plan of a search, None before it has one."""
    return Plan(**study.user_attrs[PLAN]) if PLAN in study.user_attrs else None


def trials(study: Study) -> list[Trial]:
    """Every trial that was started, in order, repeats and ablation steps included."""
    known = [trial(t) for t in study.get_trials(deepcopy=False)]
    return [t for t in known if t is not None]


def passed_over(study: Study) -> list[PassedOver]:
    """The suggestions that were not worth starting, with the reason of each."""
    known = [t.user_attrs for t in study.get_trials(deepcopy=False)]
    skipped = [(values[CONFIG], values["outcome"]["reason"]) for values in known if _is_skipped(values)]
    noted = [one for values in known for one in values.get(PASSED_OVER, ())]
    return [_passed_over(one) for one in skipped + noted]


def _passed_over(noted: Mapping[str, Any] | Sequence[Any]) -> PassedOver:
    """One as it is noted; a configuration and a reason in words are all that earlier versions have."""
    return PassedOver.from_dict(noted) if isinstance(noted, Mapping) else PassedOver.in_words(*noted)


def _is_skipped(values: Mapping[str, Any]) -> bool:
    return bool(values.get("outcome", {}).get("status") == _SKIPPED)


def trial(known: Attributes) -> Trial | None:
    """The trial in one of the study's; None where it never ran, or has no configuration: somebody else's."""
    values = known.user_attrs
    if CONFIG not in values or _is_skipped(values):
        return None
    outcome, repeat = values.get("outcome"), values.get(REPEAT)
    return Trial(
        number=known.number,
        config=values[CONFIG],
        outcome=Outcome.from_dict(outcome) if outcome else None,
        measurement=Measurement.from_dict(values.get("measurement", {"shared": values.get(SHARED, False)})),
        seconds=values.get("seconds", 0.0),
        repeat=Repeat.from_dict(repeat) if repeat else None,
        ablation_of=values.get(ABLATION_OF),
        race=tuple(values.get(RACE, ())),
    )
