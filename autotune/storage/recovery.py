"""Rebuilds a study from what can be read of it, and from the files that its trials have written."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from autotune.core.errors import DamagedError
from autotune.core.rejected_suggestion import RejectedSuggestion
from autotune.core.trial import Trial, TrialKind
from autotune.space.space import Space
from autotune.storage import identity, studies, study_file
from autotune.storage.identity import TrialIdentity
from autotune.storage.records import read_records, seconds_of, spans_of
from autotune.storage.store import Session
from autotune.storage.study_file import Plan, StudyFile
from autotune.storage.trial_dir import TrialDir


@dataclass(frozen=True)
class Found:
    """What is known of a session's trials without relying on its study."""

    trials: tuple[Trial, ...]  # in order, running ones included
    lost: tuple[int, ...]  # the numbers of trials of which nothing else is known
    plan: Plan | None  # None if the study does not say it
    passed: Mapping[int, Sequence[RejectedSuggestion]]  # rejected before a trial, by its number

    @property
    def says_anything(self) -> bool:
        """True if a trial is known to have ended, or all that were begun are known."""
        return any(trial.outcome for trial in self.trials) or not self.lost

    @property
    def lost_passed(self) -> list[int]:
        """The trials before which suggestions may have been rejected that are no longer known."""
        return sorted({*self.lost, *(t.number for t in self.trials if t.number not in self.passed)})

    @property
    def spent_s(self) -> float:
        """The seconds that the trials have taken, or what the study says if that is more."""
        return max(sum(trial.seconds for trial in self.trials), self.plan.spent_s if self.plan else 0.0)


def find(session: Session, space: Space) -> Found:
    """Returns what the study, as far as it can be read, and the trials' own files say.

    If both know a trial, the study has the figures, and the files say what was run. The baseline's settings
    are known even if neither says them.
    """
    study, numbers = _readable(session), identity.used_numbers(session.trials_dir)
    known = {0: Trial(0, space.baseline_config)}
    known |= {trial.number: trial for trial in _trials_of(study) if studies.can_hold(space, trial.config)}
    for number, begun in session.identities(numbers).items():
        trial = known.get(number)
        is_known = trial is not None and trial.outcome is not None and session.identity_of(trial) == begun
        if not is_known and studies.can_hold(space, begun.config):
            known[number] = _ended(session.trial_dir(number), begun)
    trials = _with_references(_shared(session, {n: known[n] for n in sorted(known)}))
    kept = {trial.number for trial in trials}
    last = max([*numbers, len(study.entries) - 1, *kept])
    lost = tuple(n for n in range(last + 1) if n not in kept)
    return Found(tuple(trials), lost, _plan(study), _passed(study))


def rebuild(session: Session, space: Space, found: Found) -> list[Path]:
    """Replaces the session's study by one of what was `found`, completely or not at all.

    Returns the new names of the old files: nothing is deleted.
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
            studies.add_unknown(study)
        else:
            studies.write(study, space, trial, found.passed.get(number, ()))
    studies.close(study)
    studies.settle(new)
    aside = [identity.set_aside(file) for file in study_file.files_of(session.study_file)]
    new.rename(session.study_file)
    return aside


def _readable(session: Session) -> StudyFile:
    """Returns what can be read of the study, if anything can, and if it is this session's."""
    try:
        study = study_file.load_study(session.study_file)
    except (KeyError, DamagedError):
        return StudyFile({}, ())
    return study if study.key in {"", session.key} else StudyFile({}, ())


def _trials_of(study: StudyFile) -> Iterator[Trial]:
    """Yields the trials of a study that can be read."""
    for entry in study.entries:
        with suppress(DamagedError):
            if (trial := entry.trial) is not None:
                yield trial


def _ended(place: TrialDir, begun: TrialIdentity) -> Trial:
    """Returns the trial that was `begun` in `place`, ended if its verdict is there."""
    if (verdict := identity.read_verdict(place)) is None:
        return begun.trial
    outcome, measurement = verdict
    raced_s = sum(one.seconds for one in measurement.slices)
    seconds = seconds_of(read_records(place)) + raced_s
    return replace(begun.trial, outcome=outcome, measurement=measurement, seconds=seconds)


def _shared(session: Session, known: Mapping[int, Trial]) -> dict[int, Trial]:
    """Marks the trials alongside which others ran: their records show when, and no verdict says it."""
    spans = {n: spans_of(read_records(session.trial_dir(n))) for n in known}
    beside = {n for n in spans for other in spans if other != n and _overlap(spans[n], spans[other])}
    return {n: _beside_others(trial) if n in beside else trial for n, trial in known.items()}


def _beside_others(trial: Trial) -> Trial:
    return replace(trial, measurement=replace(trial.measurement, shared=True))


def _overlap(some: Sequence[tuple[float, float]], others: Sequence[tuple[float, float]]) -> bool:
    return any(begun < end and start < ended for begun, ended in some for start, end in others)


def _with_references(known: Mapping[int, Trial]) -> list[Trial]:
    """Returns the trials whose referenced trials (repeated, raced, explained) are all in `known`."""
    searched = {n for n, trial in known.items() if trial.kind is TrialKind.SEARCHED}
    return [trial for trial in known.values() if trial.references <= searched]


def _plan(study: StudyFile) -> Plan | None:
    try:
        return study.plan
    except DamagedError:
        return None


def _passed(study: StudyFile) -> dict[int, Sequence[RejectedSuggestion]]:
    known: dict[int, Sequence[RejectedSuggestion]] = {}
    for entry in study.entries:
        with suppress(DamagedError):
            known[entry.number] = entry.passed_over
    return known
