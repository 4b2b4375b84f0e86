"""A trial as the Optuna study keeps it: the one record of what happened in a search.

The configuration, the outcome and the measurement are user attributes, written before the trial's state
changes: whatever moment the process is killed at, `recover` can finish what was begun.
"""

import math
import sqlite3
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path

import optuna
from optuna.trial import FrozenTrial, TrialState

from autotune import objective
from autotune.trial import Config, Measurement, Outcome, Status, Trial

CONFIG = "config"  # the user attribute that says what a trial runs
KNOWN_ALREADY = "was tried already"
_NAME = "autotune"
_WORST = (0.0, 0.0)  # throughput and quality of a trial that has neither


def open_study(file: Path, sampler: optuna.samplers.BaseSampler | None = None) -> optuna.Study:
    """The study in the SQLite `file`, created where it is not there yet.

    Written ahead and synced fully: a power cut keeps every trial that had ended.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with sqlite3.connect(file) as connection:
        connection.execute("PRAGMA journal_mode=WAL")  # kept in the file; synchronous is FULL by default
    connection.close()
    storage = optuna.storages.RDBStorage(f"sqlite:///{file}", engine_kwargs={"connect_args": {"timeout": 60}})
    study = optuna.create_study(
        study_name=_NAME,
        storage=storage,
        sampler=sampler,
        directions=["maximize", "maximize"],
        load_if_exists=True,
    )
    with warnings.catch_warnings(action="ignore", category=optuna.exceptions.ExperimentalWarning):
        study.set_metric_names(["throughput", "quality"])  # what optuna-dashboard calls the axes
    return study


def load_study(file: Path) -> optuna.Study:
    """The study in `file`, to be read only: nothing is written, a running search is not disturbed."""
    return optuna.load_study(study_name=_NAME, storage=f"sqlite:///{file}")


@dataclass(frozen=True)
class Plan:
    """How many trials a search is to have, the seconds it may take, and those that it has taken."""

    trials: int
    time_s: float | None
    spent_s: float = 0.0


def plan(study: optuna.Study) -> Plan | None:
    """The plan of a search, None before it has one."""
    return Plan(**study.user_attrs["plan"]) if "plan" in study.user_attrs else None


def set_plan(study: optuna.Study, plan: Plan) -> None:
    study.set_user_attr("plan", asdict(plan))


def trials(study: optuna.Study) -> list[Trial]:
    """Every trial that was started, in order; what was passed over is in `skipped`."""
    known = [_read(t) for t in study.get_trials(deepcopy=False)]
    return [t for t in known if t is not None and not _is_skipped(t)]


def skipped(study: optuna.Study) -> list[Trial]:
    """The suggestions that were not worth starting, with the reason of each as its outcome."""
    known = [_read(t) for t in study.get_trials(deepcopy=False)]
    return [t for t in known if t is not None and _is_skipped(t)]


def _is_skipped(trial: Trial) -> bool:
    return trial.outcome is not None and trial.outcome.status is Status.SKIPPED


def _read(frozen: FrozenTrial) -> Trial | None:
    """The trial in an Optuna trial; None where the process was killed before it had a configuration."""
    values = frozen.user_attrs
    if CONFIG not in values:
        return None
    outcome = values.get("outcome")
    return Trial(
        number=frozen.number,
        config=values[CONFIG],
        outcome=Outcome.from_dict(outcome) if outcome else None,
        measurement=Measurement.from_dict(values.get("measurement", {})),
        seconds=values.get("seconds", 0.0),
    )


def begin(trial: optuna.Trial, config: Config) -> None:
    """Records what `trial` is going to run."""
    trial.set_user_attr(CONFIG, dict(config))


def end(study: optuna.Study, trial: Trial, memory_fraction: float) -> None:
    """Records how `trial` ended and tells the sampler; doing it twice changes nothing.

    A trial without both figures is told as complete, with the worst values and a violated constraint: told as
    failed, the samplers would not see it, and would run into the same border again and again.
    """
    if trial.outcome is None:
        raise ValueError(f"trial {trial.number} has not ended")
    frozen = study.get_trials(deepcopy=False)[trial.number]
    if frozen.state.is_finished():
        return
    handle = optuna.Trial(study, frozen._trial_id)  # the only way to a trial of an earlier process
    handle.set_user_attr("measurement", trial.measurement.to_dict())
    handle.set_user_attr("seconds", trial.seconds)
    handle.set_user_attr("outcome", trial.outcome.to_dict())
    _tell(study, handle, trial, memory_fraction)


def _tell(study: optuna.Study, handle: optuna.Trial, trial: Trial, memory_fraction: float) -> None:
    values = (trial.samples_per_s, trial.quality)
    if trial.completed and all(v is not None and math.isfinite(v) for v in values):
        share = objective.memory_share(trial.measurement)
        handle.set_constraint("memory", -1.0 if share is None else share - memory_fraction)
        study.tell(handle, [float(v or 0) for v in values])
    elif _is_skipped(trial) and trial.outcome and trial.outcome.reason == KNOWN_ALREADY:
        study.tell(handle, state=TrialState.FAIL)  # its twin has told the sampler already
    else:
        handle.set_constraint(str(trial.outcome), 1.0)
        study.tell(handle, list(_WORST))


def recover(study: optuna.Study, memory_fraction: float) -> list[Trial]:
    """Finishes what a killed process left undone, and returns the trials that it was running.

    Those go on under their number. A trial killed before it had a configuration never was one.
    """
    interrupted = []
    for frozen in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        trial = _read(frozen)
        if trial is None:
            study.tell(frozen.number, state=TrialState.FAIL)
        elif trial.outcome is None:
            interrupted.append(trial)
        else:
            end(study, trial, memory_fraction)
    return interrupted
