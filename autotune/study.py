"""A trial as the Optuna study keeps it: the one record of what happened in a search.

The configuration, the outcome and the measurement are user attributes, written before the trial's state
changes: whatever moment the process is killed at, `recover` can finish what was begun.
"""

import math
import sqlite3
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from autotune import failures, objective, sampler
from autotune.knobs import Distribution, ScaledLearningRate
from autotune.space import Space
from autotune.trial import Config, Measurement, Outcome, Repeat, Status, Trial

# User attributes of a trial.
_CONFIG, _REPEAT, _WAY_TO, _PASSED_OVER, _SHARED = "config", "repeat", "way_to", "passed_over", "shared"
_NAMELESS = "constraints"  # a system attribute of Optuna before 5, and all that optuna-dashboard 0.21 knows
_NAME = "autotune"
_ROUNDING = 1e-3  # of a learning rate, which has four digits, and more than its share can be
_PATIENCE_S = 60.0  # with another program that writes the study: a dashboard
_SKIPPED = "skipped"  # the status of what was passed over, which format 1 kept as a trial
_WORST = (0.0, 0.0)  # throughput and quality of a trial that has neither


def open_study(file: Path, space: Space) -> optuna.Study:
    """The study of a search of `space` in the SQLite `file`, created where it is not there yet."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage = optuna.storages.RDBStorage(f"sqlite:///{file}", {"creator": partial(_writing, file)})
    study = optuna.create_study(
        study_name=_NAME,
        storage=storage,
        directions=["maximize", "maximize"],
        load_if_exists=True,
    )
    with warnings.catch_warnings(action="ignore", category=optuna.exceptions.ExperimentalWarning):
        study.set_metric_names([space.objective.speed, space.objective.quality])
    return study


def load_study(file: Path) -> optuna.Study:
    """The study in `file`, to be read only: nothing is written, a running search is not disturbed.

    Raises KeyError as long as it is still to be made.
    """
    if not file.exists():
        raise KeyError(f"there is no study in {file} yet")
    try:
        storage = optuna.storages.RDBStorage(
            f"sqlite:///{file}", {"creator": partial(_reading, file)}, skip_table_creation=True
        )
        return optuna.load_study(study_name=_NAME, storage=storage)
    except Exception as error:
        if any(map(_is_half_made, failures.chain(error))):
            raise KeyError(f"there is no study in {file} yet") from None
        raise


def _is_half_made(error: BaseException) -> bool:
    """Whether a study lacks what Optuna would have to write first."""
    is_refused = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_READONLY
    return isinstance(error, sqlite3.Error) and (is_refused or "no such table" in str(error))


def _connect(file: Path, how: str) -> sqlite3.Connection:
    uri = f"{file.resolve().as_uri()}?{how}"
    return sqlite3.connect(uri, _PATIENCE_S, check_same_thread=False, uri=True)


def _writing(file: Path) -> sqlite3.Connection:
    """Written ahead and synced fully: a power cut keeps every trial that had ended."""
    connection = _connect(file, "mode=rwc")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    return connection


def _reading(file: Path) -> sqlite3.Connection:
    """Reads what is written ahead, too, which takes a file that writers and readers share.

    Where that cannot be made - the disk is read-only, or full - and nothing is written ahead, there is nobody
    to share it with.
    """
    connection = _connect(file, "mode=ro")
    try:
        connection.execute("PRAGMA schema_version")
    except sqlite3.OperationalError:
        ahead = file.with_name(f"{file.name}-wal")
        if ahead.exists() and ahead.stat().st_size:
            raise
        connection.close()
        return _connect(file, "mode=ro&immutable=1")
    return connection


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
    """Every trial that was started, in order, repeats and steps of the way included."""
    known = [_read(t) for t in study.get_trials(deepcopy=False)]
    return [t for t in known if t is not None]


def passed_over(study: optuna.Study) -> list[tuple[Config, str]]:
    """The suggestions that were not worth starting, with the reason of each."""
    known = [t.user_attrs for t in study.get_trials(deepcopy=False)]
    skipped = [(values[_CONFIG], values["outcome"]["reason"]) for values in known if _is_skipped(values)]
    return skipped + [(config, reason) for values in known for config, reason in values.get(_PASSED_OVER, ())]


def _is_skipped(values: Mapping[str, Any]) -> bool:
    return bool(values.get("outcome", {}).get("status") == _SKIPPED)


def _read(frozen: FrozenTrial) -> Trial | None:
    """The trial in an Optuna trial; None where it never ran, or has no configuration: somebody else's."""
    values = frozen.user_attrs
    if _CONFIG not in values or _is_skipped(values):
        return None
    outcome, repeat = values.get("outcome"), values.get(_REPEAT)
    return Trial(
        number=frozen.number,
        config=values[_CONFIG],
        outcome=Outcome.from_dict(outcome) if outcome else None,
        measurement=Measurement.from_dict(values.get("measurement", {"shared": values.get(_SHARED, False)})),
        seconds=values.get("seconds", 0.0),
        repeat=Repeat.from_dict(repeat) if repeat else None,
        way_to=values.get(_WAY_TO),
    )


def begin(
    study: optuna.Study,
    space: Space,
    config: Config,
    repeat: Repeat | None = None,
    *,
    passed: Sequence[tuple[Config, str]] = (),
    way_to: int | None = None,
) -> Trial:
    """Records a trial that is going to run `config`, and what was `passed` over before it.

    One write makes it, so that a kill leaves the whole trial or none.
    """
    attributes: dict[str, Any] = {_CONFIG: dict(config)}
    attributes |= {_REPEAT: asdict(repeat)} if repeat else {}
    attributes |= {} if way_to is None else {_WAY_TO: way_to}
    attributes |= {_PASSED_OVER: [[dict(c), reason] for c, reason in passed]} if passed else {}
    study.add_trial(
        create_trial(
            state=TrialState.RUNNING,
            params=dict(config),
            distributions=_distributions(space),
            user_attrs=attributes,
        )
    )
    return Trial(study.get_trials(deepcopy=False)[-1].number, config, repeat=repeat, way_to=way_to)


def _distributions(space: Space) -> dict[str, BaseDistribution]:
    """Where the knobs' values come from, as whoever opens the study sees them: the sampler has its own."""
    return {name: _distribution(knob, space) for name, knob in space.knobs.items()}


def _distribution(knob: Distribution | ScaledLearningRate, space: Space) -> BaseDistribution:
    if isinstance(knob, ScaledLearningRate):
        return FloatDistribution(*_learning_rates(knob, space), log=True)
    if knob.exponents:
        lowest, highest = knob.exponents
        return IntDistribution(2**lowest, 2**highest, log=True)
    return sampler.distribution(knob)


def _learning_rates(knob: ScaledLearningRate, space: Space) -> tuple[float, float]:
    """Between which learning rates every configuration lies, their rounding counted in."""
    micro, accumulation = (_numbers(name, space) for name in ("micro_batch_size", "accumulation_steps"))
    multipliers = [float(value or 0) for value in knob.multiplier.choice or knob.multiplier.bounds]
    smallest = {"micro_batch_size": min(micro), "accumulation_steps": min(accumulation)}
    largest = {"micro_batch_size": max(micro), "accumulation_steps": max(accumulation)}
    lowest, highest = (
        space.learning_rate(smallest, min(multipliers)),
        space.learning_rate(largest, max(multipliers)),
    )
    return lowest * (1 - _ROUNDING), highest * (1 + _ROUNDING)


def _numbers(name: str, space: Space) -> list[int]:
    """The values of a setting of whole numbers, or only its lowest and highest."""
    knob = space.knobs.get(name)
    if isinstance(knob, Distribution):
        return [int(value or 1) for value in knob.choice or knob.bounds]
    return [int(space.baseline.get(name) or 1)]


def share(study: optuna.Study, number: int) -> None:
    """Records that others run beside a trial: a kill must not make its figures look measured alone."""
    frozen = study.get_trials(deepcopy=False)[number]
    optuna.Trial(study, frozen._trial_id).set_user_attr(_SHARED, True)  # the only way to an added trial


def end(study: optuna.Study, trial: Trial, memory_fraction: float) -> None:
    """Records how `trial` ended; doing it twice changes nothing.

    A trial that failed is complete for Optuna, with the worst values and a violated constraint: so whatever
    opens the study sees where the border is.
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
        _constrain(handle, "memory", -1.0 if share is None else share - memory_fraction)
        study.tell(handle, [float(v or 0) for v in values])
    elif trial.outcome and trial.outcome.status is Status.STOPPED:
        study.tell(handle, state=TrialState.PRUNED)
    else:
        _constrain(handle, str(trial.outcome), 1.0)
        study.tell(handle, list(_WORST))


def _constrain(handle: optuna.Trial, name: str, violation: float) -> None:
    """Says by how much a limit is exceeded: by its name, and without one, which is how dashboards read it."""
    handle.set_constraint(name, violation)
    handle.storage.set_trial_system_attr(handle._trial_id, _NAMELESS, [violation])


def recover(study: optuna.Study, memory_fraction: float) -> list[Trial]:
    """Finishes what a killed process left undone, and returns the trials that it was running.

    Those go on under their number.
    """
    interrupted = []
    for frozen in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        trial = _read(frozen)
        if trial is None:
            continue
        if trial.outcome is None:
            interrupted.append(trial)
        else:
            end(study, trial, memory_fraction)
    return interrupted
