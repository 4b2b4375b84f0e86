"""Rebuilds a damaged study from its readable parts and from its trials' own files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path
from typing import Any

from autotune.core.errors import DamagedError
from autotune.core.trial import RejectedSuggestion, Trial, TrialKind
from autotune.space.space import Space
from autotune.storage import identity, studies, study_file
from autotune.storage.identity import TrialIdentity
from autotune.storage.layout import TrialDir
from autotune.storage.records import attempts_of, read_records, seconds_of
from autotune.storage.store import StoredSession
from autotune.storage.study_file import SearchPlan, StudyEntry, StudyFile


@dataclass(frozen=True)
class ReadableTrials:
    """The readable facts about a session's trials, even if the study is damaged."""

    trials: tuple[Trial, ...]  # in order, running ones included
    lost: tuple[int, ...]  # trials of which only the number is known
    plan: SearchPlan | None  # None if it cannot be read
    rejections: Mapping[int, Sequence[RejectedSuggestion]]  # rejected before a trial, by its number

    @property
    def says_anything(self) -> bool:
        """True if a trial is known to have ended, or no trial is lost."""
        return any(trial.outcome for trial in self.trials) or not self.lost

    @property
    def lost_rejections(self) -> list[int]:
        """The numbers of the trials before which rejected suggestions may be lost."""
        return sorted({*self.lost, *(t.number for t in self.trials if t.number not in self.rejections)})

    @property
    def spent_s(self) -> float:
        return max(sum(trial.seconds for trial in self.trials), self.plan.spent_s if self.plan else 0.0)


def read_trials(session: StoredSession, space: Space) -> ReadableTrials:
    """Gathers the trials that the readable parts of the study and the trials' own files describe.

    For a trial in both, the study's figures count if it has ended there and has the same identity.
    """
    try:
        study = study_file.load_study(session.study_file)
    except (KeyError, DamagedError):
        study = StudyFile({}, ())
    if study.key not in {"", session.key}:  # another session's
        study = StudyFile({}, ())
    numbers = identity.used_numbers(session.trials_dir)
    known = {0: Trial(0, space.baseline_config)}
    read = [trial for entry in study.entries if (trial := _readable(entry, "trial"))]
    known |= {trial.number: trial for trial in read if studies.can_hold(space, trial.config)}
    for number, begun in session.identities(numbers).items():
        trial = known.get(number)
        is_known = trial is not None and trial.outcome is not None and session.identity_of(trial) == begun
        if not is_known and studies.can_hold(space, begun.config):
            known[number] = _restore(session.trial_dir(number), begun)
    known = _mark_shared(session, known)
    searched = {n for n, trial in known.items() if trial.kind is TrialKind.SEARCHED}
    trials = [known[n] for n in sorted(known) if known[n].references <= searched]
    kept = {trial.number for trial in trials}
    last = max([*numbers, len(study.entries) - 1, *kept])
    lost = tuple(n for n in range(last + 1) if n not in kept)
    passed = {entry.number: _readable(entry, "passed_over") for entry in study.entries}
    rejections = {number: each for number, each in passed.items() if each is not None}
    return ReadableTrials(tuple(trials), lost, _readable(study, "plan"), rejections)


def rebuild(session: StoredSession, space: Space, readable: ReadableTrials) -> list[Path]:
    """Replaces the study atomically with a new one made of `readable`; returns the old files, set aside."""
    new = session.study_file.with_name(f"{session.study_file.name}.new")
    for left in study_file.files_of(new):
        left.unlink()
    study = studies.open_study(new, space, session.key)
    plan = readable.plan or SearchPlan(space.budget.trials, space.budget.time)
    studies.set_plan(study, replace(plan, spent_s=readable.spent_s, ended=False))
    known = {trial.number: trial for trial in readable.trials}
    for number in range(max(known) + 1):
        if (trial := known.get(number)) is None:
            studies.add_unknown(study)
        else:
            studies.write(study, space, trial, readable.rejections.get(number, ()))
    studies.close(study)
    studies.checkpoint(new)
    aside = [identity.set_aside(file) for file in study_file.files_of(session.study_file)]
    new.rename(session.study_file)
    return aside


def _readable(source: StudyFile | StudyEntry, name: str) -> Any:
    try:
        return getattr(source, name)
    except DamagedError:
        return None


def _restore(place: TrialDir, begun: TrialIdentity) -> Trial:
    if (verdict := identity.read_verdict(place)) is None:
        return begun.trial
    outcome, measurement = verdict
    raced_s = sum(one.seconds for one in measurement.slices)
    seconds = seconds_of(read_records(place)) + raced_s
    return replace(begun.trial, outcome=outcome, measurement=measurement, seconds=seconds)


def _mark_shared(session: StoredSession, known: dict[int, Trial]) -> dict[int, Trial]:
    """Marks the trials that ran concurrently, by the times in their records, since verdicts do not tell."""
    attempts, marked = {n: attempts_of(read_records(session.trial_dir(n))) for n in known}, dict(known)
    for n, other in permutations(attempts, 2):
        if any(one.overlaps(its) for one in attempts[n] for its in attempts[other]):
            marked[n] = replace(known[n], measurement=replace(known[n].measurement, shared=True))
    return marked
