"""What a session has found, as rows and figures for whoever keeps it elsewhere. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.core.secrecy import cleaned
from autotune.core.settings import Setting
from autotune.core.trial import Trial
from autotune.display import view
from autotune.judging import confirm, objective
from autotune.judging.history import History
from autotune.space.space import Space

Value = str | bool | int | float | None


@dataclass(frozen=True)
class Rows:
    """A table: the names of its columns, and a value for each of them in every row."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]


def table(trials: Sequence[Trial], space: Space) -> Rows:
    """Every one of `trials`; a column has values of one kind, or None."""
    columns = (
        *("trial", "repeat_of", "way_to", "configuration", *space.knobs),
        *("throughput", space.objective.quality, "peak_memory_bytes", "memory_is_rising", "memory_share"),
        *("outcome", "reason"),
    )
    mixed = {name for name in space.knobs if _is_mixed([t.config.get(name) for t in trials])}
    return Rows(columns, tuple(_row(trial, space, mixed) for trial in trials))


def _row(trial: Trial, space: Space, mixed: set[str]) -> tuple[Value, ...]:
    knobs = [_shown(trial.config.get(name), as_text=name in mixed) for name in space.knobs]
    outcome, reason = (str(trial.outcome), trial.outcome.reason) if trial.outcome else ("", "")
    return (
        *(trial.number, trial.repeat.of if trial.repeat else None, trial.ablation_of),
        *(cleaned(view.knobs(trial.config)), *knobs),
        *(trial.samples_per_s, trial.quality),
        *(trial.measurement.peak_memory_bytes, trial.measurement.memory_is_rising),
        objective.memory_share(trial.measurement),
        *(outcome, cleaned(reason)),
    )


def _is_mixed(values: Sequence[Setting]) -> bool:
    kinds = {float if type(value) is int else type(value) for value in values if value is not None}
    return len(kinds) > 1


def _shown(value: Setting, *, as_text: bool) -> Value:
    shown: Value = cleaned(str(value) if as_text else value)
    return shown


def figures(history: History) -> dict[str, Value]:
    """The winner's figures and the baseline's, and the gain; only how trials ended before there is any."""
    found: dict[str, Value] = {"outcomes": view.counts(history.trials)}
    space, baseline, best = history.space, history.baseline, confirm.recommended(history)
    if baseline is None or best is None:
        return found
    winner, claim = best
    found |= _side("baseline", baseline, history.baseline_quality, space)
    found |= _side("winner", winner, claim.quality if claim else winner.quality, space)
    target = space.objective.target
    single = None if target is not None else objective.factor_interval(winner, baseline)
    interval = (claim.low, claim.high) if claim else single
    low, high = (interval if winner.number else None) or (None, None)
    return found | {
        "gain/factor": claim.factor if claim else objective.factor(winner, baseline, target),
        "gain/low": low,
        "gain/high": high,
        "gain/is_confirmed": claim is not None,
    }


def _side(who: str, trial: Trial, quality: float | None, space: Space) -> dict[str, Value]:
    return {
        f"{who}/trial": trial.number,
        f"{who}/configuration": cleaned(view.knobs(trial.config)),
        f"{who}/throughput": trial.samples_per_s,
        f"{who}/{space.objective.quality}": quality,
        f"{who}/peak_memory_bytes": trial.measurement.peak_memory_bytes,
        f"{who}/memory_is_rising": trial.measurement.memory_is_rising,
        f"{who}/memory_share": objective.memory_share(trial.measurement),
    }
