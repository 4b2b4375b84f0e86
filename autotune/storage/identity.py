"""Whose a trial's files are: a digest of its settings and of its session, which every one of them carries.

Without it a file is known by its number alone, and trial 7 of one study is not trial 7 of another.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from pydantic import TypeAdapter

from autotune.core import files
from autotune.core.settings import Setting
from autotune.core.trial import Measurement, Outcome, Repeat, Trial
from autotune.storage.records import is_mark, lines_of, read_records
from autotune.storage.trial_dir import ASIDE, TrialDir

OF, SEAL = "of", "seal"  # the keys under which a file of a trial says whose it is, and that it is whole
_DIGITS = 16
_NUMBER = re.compile(r"\d{4,}")


def digest(*parts: object) -> str:
    """16 hexadecimal digits that tell `parts`, plain values, from others."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:_DIGITS]


@dataclass(frozen=True)
class Card:
    """What a trial is, whatever came of it: of which session, and what it was to run."""

    session: str
    number: int
    config: dict[str, Setting]
    repeat: Repeat | None = None
    ablation_of: int | None = None
    race: tuple[int, ...] = ()

    @classmethod
    def of(cls, session: str, trial: Trial) -> Self:
        return cls(
            session, trial.number, dict(trial.config), trial.repeat, trial.ablation_of, tuple(trial.race)
        )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Card":
        """The card whose `to_dict` gave `values`; raises ValueError for anything else."""
        return _CARD.validate_python(values)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as JSON has them."""
        return {**vars(self), "race": list(self.race), "repeat": self.repeat and asdict(self.repeat)}

    @property
    def digest(self) -> str:
        return digest(self.to_dict())

    @property
    def trial(self) -> Trial:
        """The trial as it was begun."""
        return Trial(
            self.number, self.config, repeat=self.repeat, ablation_of=self.ablation_of, race=self.race
        )


_CARD = TypeAdapter(Card)


def seal(of: str, outcome: Mapping[str, Any], measurement: Mapping[str, Any], seconds: float = 0.0) -> str:
    """What identifies the figures of the trial with the digest `of`."""
    return digest(of, outcome, measurement, seconds)


def write_card(place: TrialDir, card: Card) -> None:
    """Says whose the directory is."""
    if not place.card_file.exists():
        files.write_whole(place.card_file, json.dumps({OF: card.digest, **card.to_dict()}))


def stamp(place: TrialDir, of: str) -> None:
    """Says in the workload's own directory whose checkpoint is there, or will be."""
    place.work.mkdir(exist_ok=True)
    if _stamped(place) != of:
        files.write_whole(place.stamp_file, of)


def read_card(place: TrialDir) -> Card | None:
    """The card of the trial in `place`; None where there is none, or where it is not as it was written."""
    try:
        values = json.loads(files.read(place.card_file))
        of = values.pop(OF)
        card = Card.from_dict(values)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return card if card.digest == of else None


def write_verdict(place: TrialDir, outcome: Outcome, measurement: Measurement, of: str = "") -> None:
    """Writes how a trial ended, whole or not at all: it is there even if the report of it is lost."""
    ended, figures = outcome.to_dict(), measurement.to_dict()
    sealed = {OF: of, SEAL: seal(of, ended, figures), "outcome": ended, "measurement": figures}
    files.write_whole(place.verdict_file, json.dumps(sealed))


def read_verdict(place: TrialDir, of: str = "") -> tuple[Outcome, Measurement] | None:
    """How the trial with the digest `of` ended, None if no attempt in `place` came that far.

    What is of another trial, or is not as it was written, is none.
    """
    try:
        final = json.loads(files.read(place.verdict_file))
        outcome, measurement = final["outcome"], final["measurement"]
        if of and (final.get(OF) != of or final.get(SEAL) != seal(of, outcome, measurement)):
            return None
        return Outcome.from_dict(outcome), Measurement.from_dict(measurement)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def is_of_another(place: TrialDir, of: str) -> bool:
    """Whether anything in `place` is not, or not certainly, of the trial with the digest `of`."""
    return any(found != of for found in _owners(place))


def may_be_of(place: TrialDir, of: str) -> bool:
    """Whether nothing in `place` says that it is of another trial; an earlier release's files do not say."""
    return all(found in {of, None} for found in _owners(place))


def _owners(place: TrialDir) -> Iterator[str | None]:
    """Whose every file in `place` says that it is; None where it does not say."""
    if place.card_file.exists():
        card = read_card(place)
        yield card.digest if card else None
    if place.verdict_file.exists():
        yield digest_in(place.verdict_file)
    if place.work.is_dir() and any(place.work.iterdir()):
        yield _stamped(place)
    records = list(read_records(place))
    yield from (record.get(OF) for record in records if is_mark(record))
    if records and not is_mark(records[0]):
        yield None
    rounds = list(lines_of(place.slices_file))
    if rounds:
        yield rounds[0].get(OF) if isinstance(rounds[0], dict) else None


def digest_in(file: Path) -> str | None:
    """Returns the digest of the trial that a card or a verdict says it is of."""
    try:
        found = json.loads(files.read(file))[OF]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return found if isinstance(found, str) else None


def _stamped(place: TrialDir) -> str | None:
    try:
        return files.read(place.stamp_file).strip()
    except (OSError, ValueError):
        return None


def set_aside(path: Path) -> Path:
    """Gives what is at `path` the first name of its own that is free, and returns that."""
    names = (path.with_name(f"{path.name}{ASIDE}{n}") for n in range(1, 10**6))
    aside = next(name for name in names if not name.exists())
    path.rename(aside)
    return aside


def numbers(trials_dir: Path) -> list[int]:
    """The numbers of the trials that have a directory with something in it."""
    found = trials_dir.iterdir() if trials_dir.is_dir() else ()
    return sorted(int(p.name) for p in found if _NUMBER.fullmatch(p.name) and p.is_dir() and any(p.iterdir()))
