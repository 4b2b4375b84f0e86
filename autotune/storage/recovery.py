"""A study rebuilt from what can be read of it, and from what the trials have written themselves."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from autotune.core.errors import DamagedError
from autotune.core.passed_over import PassedOver
from autotune.core.trial import Trial, TrialKind
from autotune.space.space import Space
from autotune.storage import identity, studies, study_file
from autotune.storage.records import read_records, seconds_of, spans_of
from autotune.storage.store import Session
from autotune.storage.study_file import Plan, StudyFile

_MOST_LOST = 10_000


@dataclass(frozen=True)
class Found:
    """What is known of a session's trials without relying on its study.

    `trials` are known whole, in order, running ones included; `lost` are the numbers of trials of which
    nothing else is known. `plan` is None where the study does not say; `passed` has what was passed over
    before a trial.
    """

    trials: tuple[Trial, ...]
    lost: tuple[int, ...]
    plan: Plan | None = None
    passed: Mapping[int, Sequence[PassedOver]] = field(default_factory=dict)

    @property
    def says_anything(self) -> bool:
        """Whether a trial is known to have ended, or all that were begun are known."""
        return any(trial.outcome for trial in self.trials) or not self.lost

    @property
    def lost_passed(self) -> list[int]:
        """The trials before which something may have been passed over that is not known any more."""
        return sorted({*self.lost, *(t.number for t in self.trials if t.number not in self.passed)})

    @property
    def spent_s(self) -> float:
        """What the trials have taken, or what the study says where that is more."""
        return max(sum(trial.seconds for trial in self.trials), self.plan.spent_s if self.plan else 0.0)


def find(session: Session, space: Space) -> Found:
    """What the study, as far as it can be read, and the trials' own files say.

    Where both do, the study counts. The baseline's settings are known even where neither says.
    """
    study, numbers = _plausible(_readable(session), identity.numbers(session.trials_dir))
    entries = {t.number: t for t in _trials_of(study, session.key) if studies.fits(space, t.config)}
    own = {t.number: t for n in numbers if (t := _from_files(session, n)) and studies.fits(space, t.config)}
    known = {0: Trial(0, space.baseline_config)} | own
    for number, trial in entries.items():
        ended_unheard = trial.outcome is None and number in own and not session.has_run_another(trial)
        known[number] = own[number] if ended_unheard else trial
    trials = _with_references(_shared(session, {n: known[n] for n in sorted(known)}))
    kept = {trial.number for trial in trials}
    last = max([*numbers, *(entry.number for entry in study.entries), *kept])
    lost = tuple(n for n in range(last + 1) if n not in kept)
    return Found(tuple(trials), lost, _plan(study), _passed(study))


def _plausible(study: StudyFile, numbers: Sequence[int]) -> tuple[StudyFile, list[int]]:
    """Without numbers that no search can have reached: a damaged one would have billions of trials lost."""
    most = len(study.entries) + len(numbers) + _MOST_LOST
    entries = tuple(entry for entry in study.entries if _is_number(entry.number, most))
    return StudyFile(study.user_attrs, entries), [n for n in numbers if n <= most]


def _is_number(found: object, most: int) -> bool:
    """Whether SQLite's value in a column of whole numbers is one: SQLite accepts anything."""
    return isinstance(found, int) and 0 <= found <= most


def rebuild(session: Session, space: Space, found: Found) -> list[Path]:
    """Writes a study of what was `found` in place of the session's; returns what has made room for it.

    It is there whole, or not at all. Nothing is deleted.
    """
    new = session.study_file.with_name(f"{session.study_file.name}.new")
    for left in study_file.files_of(new):
        left.unlink()
    study = studies.open_study(new, space, session.key)
    plan = found.plan or Plan(space.budget.trials, space.budget.time)
    studies.set_plan(study, replace(plan, spent_s=found.spent_s, ended=False))
    known = {trial.number: trial for trial in found.trials}
    for number in range(max(known) + 1):
        if (trial := known.get(number)) is None:
            studies.leave_out(study)
        else:
            studies.write(study, space, trial, found.passed.get(number, ()))
    studies.close(study)
    studies.settle(new)
    aside = [identity.set_aside(file) for file in study_file.files_of(session.study_file)]
    new.rename(session.study_file)
    others = [t for t in found.trials if session.has_run_another(t)]
    return [*aside, *(identity.set_aside(session.trial_dir(t.number).root) for t in others)]


def _readable(session: Session) -> StudyFile:
    """What can be read of the study, if anything can; nothing of another session's."""
    try:
        study = study_file.load_study(session.study_file)
    except (KeyError, DamagedError):
        return StudyFile({}, ())
    return study if study_file.key(study) in {"", session.key} else StudyFile({}, ())


def _trials_of(study: StudyFile, key: str) -> Iterator[Trial]:
    """Those trials of a study that are as they were written."""
    for entry in study.entries:
        with suppress(DamagedError):
            if (trial := study_file.trial(entry, key)) is not None:
                yield trial


def _from_files(session: Session, number: int) -> Trial | None:
    """The trial that its own files say they are of, ended where they have its verdict."""
    place = session.trial_dir(number)
    card = identity.read_card(place)
    if card is None or (card.session, card.number) != (session.key, number):
        return None
    verdict = identity.read_verdict(place, card.digest)
    if verdict is None:
        return card.trial
    outcome, measurement = verdict
    raced_s = sum(one.seconds for one in measurement.slices)
    seconds = seconds_of(read_records(place)) + raced_s
    return replace(card.trial, outcome=outcome, measurement=measurement, seconds=seconds)


def _shared(session: Session, known: Mapping[int, Trial]) -> dict[int, Trial]:
    """`known`, with what no verdict says: that others ran alongside a trial. Records show when it ran."""
    spans = {n: spans_of(read_records(session.trial_dir(n))) for n in known}
    beside = {n for n in spans for other in spans if other != n and _overlap(spans[n], spans[other])}
    return {n: _beside_others(trial) if n in beside else trial for n, trial in known.items()}


def _beside_others(trial: Trial) -> Trial:
    return replace(trial, measurement=replace(trial.measurement, shared=True))


def _overlap(some: Sequence[tuple[float, float]], others: Sequence[tuple[float, float]]) -> bool:
    return any(begun < end and start < ended for begun, ended in some for start, end in others)


def _with_references(known: Mapping[int, Trial]) -> list[Trial]:
    """Those trials of which all is known that they are about."""
    searched = {n for n, trial in known.items() if trial.kind is TrialKind.SEARCHED}
    return [trial for trial in known.values() if trial.references <= searched]


def _plan(study: StudyFile) -> Plan | None:
    try:
        return study_file.plan(study)
    except DamagedError:
        return None


def _passed(study: StudyFile) -> dict[int, Sequence[PassedOver]]:
    known: dict[int, Sequence[PassedOver]] = {}
    for entry in study.entries:
        with suppress(DamagedError):
            known[entry.number] = study_file.passed_before(entry)
    return known
