"""Writes trials to the Optuna study, the only record of what happened in a search.

A trial's configuration, outcome and measurement are user attributes, written before its state changes, so
that `recover` can finish an update after a kill at any moment.
"""

import math
import sqlite3
import warnings
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

from autotune.core.measurement import turned
from autotune.core.settings import EFFECTIVE_BATCH, Config
from autotune.core.trial import RejectedSuggestion, Repeat, Trial
from autotune.judging.decisions import objective
from autotune.space import distributions
from autotune.space.knobs import KeptBatch, Knob, PlannedLength, ScaledLearningRate
from autotune.space.space import Space
from autotune.storage import study_file
from autotune.storage.study_file import SearchPlan, StudyEntry, StudyFile

# Optuna's system attribute `constraints:NAME` has a violation. `constraints` has all of them: Optuna wrote it
# before version 5, and optuna-dashboard 0.21 knows nothing else.
_CONSTRAINTS = "constraints"
_ROUNDING = 1e-3  # upper bound of a learning rate's relative rounding error, to four digits
_WORST = (0.0, 0.0)  # throughput and quality of a trial that has neither; it also violates a constraint


def open_study(file: Path, space: Space, session: str = "") -> optuna.Study:
    """Opens the study of a search of `space` in the SQLite `file`; creates it with the key of `session`."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    # The address only selects SQLite: Optuna would format braces in a path.
    storage = optuna.storages.RDBStorage("sqlite:///study.db", {"creator": partial(_connect, file)})
    study = optuna.create_study(
        study_name=study_file.NAME,
        storage=storage,
        directions=["maximize", "minimize" if space.objective.minimize else "maximize"],
        load_if_exists=True,
    )
    with warnings.catch_warnings(action="ignore", category=optuna.exceptions.ExperimentalWarning):
        study.set_metric_names([space.objective.speed, space.objective.quality])
    if session and not read(study).key and not study.get_trials(deepcopy=False):
        study.set_user_attr(study_file.SESSION, session)
    return study


def read(study: optuna.Study) -> StudyFile:
    known = study.get_trials(deepcopy=False)
    return StudyFile(study.user_attrs, tuple(StudyEntry(t.number, t.user_attrs) for t in known))


def checkpoint(file: Path) -> None:
    """Checkpoints the write-ahead log, so that a copy of the study's `file` alone is complete."""
    with suppress(sqlite3.Error), closing(study_file.connect(file, "mode=rw")) as connection:
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()  # a reader may delay it


def close(study: optuna.Study) -> None:
    study._storage.remove_session()
    study._storage._backend.engine.dispose()  # type: ignore[attr-defined] # no public way


def _connect(file: Path) -> sqlite3.Connection:
    """Connects with a write-ahead log and full syncs, so that ended trials survive a power cut."""
    connection = study_file.connect(file, "mode=rwc")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    return connection


def set_plan(study: optuna.Study, plan: SearchPlan) -> None:
    study.set_user_attr(study_file.PLAN, asdict(plan))


def begin(
    study: optuna.Study,
    space: Space,
    config: Config,
    repeat: Repeat | None = None,
    *,
    passed: Sequence[RejectedSuggestion] = (),
    ablation_of: int | None = None,
    race: Sequence[int] = (),
) -> Trial:
    """Records a trial of `config`, and the suggestions `passed` over before it, in one write."""
    trial = Trial(0, config, repeat=repeat, ablation_of=ablation_of, race=tuple(race))
    return replace(trial, number=_add(study, space, trial, passed))


def _add(study: optuna.Study, space: Space, trial: Trial, passed: Sequence[RejectedSuggestion]) -> int:
    """Adds a trial; a study's own methods read all its trials first, which takes several times as long."""
    attributes: dict[str, Any] = {
        study_file.CONFIG: dict(trial.config),
        study_file.REPEAT: asdict(trial.repeat) if trial.repeat else None,
        study_file.ABLATION_OF: trial.ablation_of,
        study_file.RACE: list(trial.race) or None,
        study_file.PASSED_OVER: [asdict(one) for one in passed] or None,
    }
    attributes = {name: value for name, value in attributes.items() if value is not None}
    storage, template = study._storage, _running_trial(trial.config, space, attributes)
    return storage.get_trial_number_from_id(storage.create_new_trial(study._study_id, template))


def _running_trial(config: Config, space: Space, attributes: dict[str, Any]) -> FrozenTrial:
    drawn_from = {name: _distribution(knob, space) for name, knob in space.knobs.items()}
    return create_trial(
        state=TrialState.RUNNING, params=dict(config), distributions=drawn_from, user_attrs=attributes
    )


def write(study: optuna.Study, space: Space, trial: Trial, passed: Sequence[RejectedSuggestion]) -> None:
    """Records a trial that the study lacks, running or ended."""
    _add(study, space, trial, passed)
    if trial.measurement.shared:
        mark_shared(study, trial.number)
    if trial.outcome is not None:
        end(study, trial, space.limits.memory_fraction)


def can_hold(space: Space, config: Config) -> bool:
    try:
        _running_trial(config, space, {})
    except (ValueError, TypeError):
        return False
    return True


def add_unknown(study: optuna.Study) -> None:
    """Records a placeholder for a lost trial, so that later trials keep their numbers."""
    study.add_trial(create_trial(state=TrialState.FAIL))


def _distribution(knob: Knob, space: Space) -> BaseDistribution:
    """Returns a knob's distribution for readers of the study; the sampler uses its own."""
    if isinstance(knob, PlannedLength):
        longest = math.ceil(knob.share[1] * space.budget.samples_per_trial)
        return IntDistribution(1, 2 * longest)  # twice, because a length is rounded up to whole steps
    if isinstance(knob, KeptBatch):
        return IntDistribution(1, space.effective_batch_size({}))
    if isinstance(knob, ScaledLearningRate):
        multipliers = sorted(float(value or 0) for value in knob.multiplier.choice or knob.multiplier.bounds)
        low, high = (
            space.learning_rate({n: space.whole_values(n)[end] for n in EFFECTIVE_BATCH}, multipliers[end])
            for end in (0, -1)
        )
        return FloatDistribution(low * (1 - _ROUNDING), high * (1 + _ROUNDING), log=True)
    if knob.exponents:
        lowest, highest = knob.exponents
        return IntDistribution(2**lowest, 2**highest, log=True)
    return distributions.distribution(knob)


def mark_shared(study: optuna.Study, number: int) -> None:
    """Records that other trials run alongside this one, so that this is known even after a kill."""
    study._storage.set_trial_user_attr(_id(study, number), study_file.SHARED, True)


def end(study: optuna.Study, trial: Trial, memory_fraction: float) -> None:
    """Records the end of `trial`; a second call changes nothing."""
    if trial.outcome is None:
        raise ValueError(f"trial {trial.number} has not ended")
    storage, trial_id = study._storage, _id(study, trial.number)
    with suppress(optuna.exceptions.UpdateFinishedTrialError):
        storage.set_trial_user_attr(trial_id, "measurement", asdict(trial.measurement))
        storage.set_trial_user_attr(trial_id, "seconds", trial.seconds)
        storage.set_trial_user_attr(trial_id, "outcome", asdict(trial.outcome))
        values = (trial.samples_per_s, trial.quality)
        if trial.completed and all(v is not None and math.isfinite(v) for v in values):
            share = objective.memory_share(trial.measurement)
            _constrain(study, trial_id, "memory", -1.0 if share is None else share - memory_fraction)
            # The study has the user's sign, for dashboards.
            minimize = study.directions[1] is StudyDirection.MINIMIZE
            figures = [float(values[0] or 0), turned(float(values[1] or 0), minimize=minimize)]
            storage.set_trial_state_values(trial_id, TrialState.COMPLETE, figures)
        elif trial.stopped:
            storage.set_trial_state_values(trial_id, TrialState.PRUNED)
        else:
            # Every reader of the study learns the limit from the worst values and the violated constraint.
            _constrain(study, trial_id, str(trial.outcome), 1.0)
            storage.set_trial_state_values(trial_id, TrialState.COMPLETE, _WORST)


def _id(study: optuna.Study, number: int) -> int:
    """Returns Optuna's key of a trial, as it has no public way to write to one that was added."""
    return study._storage.get_trial_id_from_study_id_trial_number(study._study_id, number)


def _constrain(study: optuna.Study, trial_id: int, name: str, violation: float) -> None:
    """Records by how much a limit is exceeded: under the limit's name, and unnamed for dashboards."""
    study._storage.set_trial_system_attr(trial_id, f"{_CONSTRAINTS}:{name}", violation)
    study._storage.set_trial_system_attr(trial_id, _CONSTRAINTS, [violation])


def recover(study: optuna.Study, memory_fraction: float) -> list[Trial]:
    """Ends the trials whose outcome a killed process had recorded; returns the trials that it was running."""
    running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
    begun = [trial for t in running if (trial := StudyEntry(t.number, t.user_attrs).trial)]
    for trial in begun:
        if trial.outcome is not None:
            end(study, trial, memory_fraction)
    return [trial for trial in begun if trial.outcome is None]
