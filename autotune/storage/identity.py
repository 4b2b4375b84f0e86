"""The identity of a trial, stored in its directory: trial 7 of one session is not trial 7 of another."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from autotune.core.measurement import Measurement
from autotune.core.settings import Setting
from autotune.core.trial import Outcome, Repeat, Trial
from autotune.storage.json_file import JsonFile
from autotune.storage.layout import ASIDE, TrialDir

_NUMBER = re.compile(r"\d{4,5}")  # no search has numbers of more digits


@dataclass(frozen=True)
class TrialIdentity:
    session: str
    number: int
    config: dict[str, Setting]
    repeat: Repeat | None = None
    ablation_of: int | None = None
    race: tuple[int, ...] = ()

    @classmethod
    def of_trial(cls, session: str, trial: Trial) -> Self:
        return cls(
            session, trial.number, dict(trial.config), trial.repeat, trial.ablation_of, tuple(trial.race)
        )

    @property
    def trial(self) -> Trial:
        """The trial as it began, without an outcome."""
        return Trial(
            self.number, self.config, repeat=self.repeat, ablation_of=self.ablation_of, race=self.race
        )


@dataclass(frozen=True)
class _Verdict:
    """The end of a trial, written by its supervisor."""

    outcome: Outcome
    measurement: Measurement


_IDENTITIES, _VERDICTS = JsonFile(TrialIdentity), JsonFile(_Verdict)


def write_identity(place: TrialDir, identity: TrialIdentity) -> None:
    """Writes the identity of the directory's trial, unless there is one already."""
    if not place.identity_file.exists():
        _IDENTITIES.write(place.identity_file, identity)


def read_identity(place: TrialDir) -> TrialIdentity | None:
    """Returns the identity of the trial in `place`, None if it is missing or unreadable."""
    return _IDENTITIES.read(place.identity_file)


def write_verdict(place: TrialDir, outcome: Outcome, measurement: Measurement) -> None:
    """Writes the end of a trial atomically, so that it stays known if the trial's last report is lost."""
    _VERDICTS.write(place.verdict_file, _Verdict(outcome, measurement))


def read_verdict(place: TrialDir) -> tuple[Outcome, Measurement] | None:
    """Returns the outcome and measurement of the trial in `place`, None if it has not ended."""
    verdict = _VERDICTS.read(place.verdict_file)
    return (verdict.outcome, verdict.measurement) if verdict else None


def set_aside(path: Path) -> Path:
    """Renames `path` to the first unused `path.aside-N`; returns the new path."""
    names = (path.with_name(f"{path.name}{ASIDE}{n}") for n in range(1, 10**6))
    aside = next(name for name in names if not name.exists())
    path.rename(aside)
    return aside


def used_numbers(trials_dir: Path) -> list[int]:
    """Returns the numbers of the trials that have files, sorted."""
    entries = trials_dir.iterdir() if trials_dir.is_dir() else ()
    trials = [entry for entry in entries if _NUMBER.fullmatch(entry.name) and entry.is_dir()]
    return sorted(int(trial.name) for trial in trials if any(trial.iterdir()))
