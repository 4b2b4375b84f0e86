"""A session's results as tables and figures for external trackers. Pure."""

from collections.abc import Sequence

from autotune.core.secrecy import without_secrets
from autotune.core.settings import Setting
from autotune.core.trial import Trial
from autotune.display import rows, view
from autotune.judging.decisions import confirm
from autotune.judging.decisions.history import History
from autotune.judging.measurement.estimates import Figure

Value = str | bool | int | float | None

_MEMORY = ("peak_memory_bytes", "memory_is_rising", "memory_share")


def table(trials: Sequence[Trial], history: History) -> dict[str, list[Value]]:
    """Returns the columns of a table with one row per trial; a column's values have one type, or are None."""
    each, quality = [rows.row(trial, history) for trial in trials], history.space.objective.quality
    return {
        "trial": [row.number for row in each],
        "repeat_of": [row.repeats for row in each],
        "ablation_of": [trial.ablation_of for trial in trials],
        "configuration": [without_secrets(row.knobs) for row in each],
        **{
            name: _with_one_type([trial.config.get(name) for trial in trials]) for name in history.space.knobs
        },
        "throughput": [_value(row.throughput) for row in each],  # over all valid runs of its settings
        "factor": [_value(row.factor) for row in each],
        quality: [row.quality for row in each],
        **{name: [getattr(row, name) for row in each] for name in _MEMORY},
        "run_throughput": [_value(row.run.throughput) for row in each],  # of the trial's own run
        f"run_{quality}": [row.run.quality for row in each],
        "outcome": [str(trial.outcome or "") for trial in trials],
        "reason": [without_secrets(row.reason) for row in each],
    }


def _with_one_type(values: Sequence[Setting]) -> list[Value]:
    types = {float if type(value) is int else type(value) for value in values if value is not None}
    cast = str if len(types) > 1 else lambda value: value
    return [None if value is None else without_secrets(cast(value)) for value in values]


def figures(history: History) -> dict[str, Value]:
    """Returns the figures of winner and baseline, and the gain; without a winner only counts of outcomes."""
    outcomes = {"outcomes": view.counts(history.trials)}
    baseline, best = history.baseline, confirm.recommended(history)
    if baseline is None or best is None:
        return {**outcomes}
    columns = table([baseline, best[0]], history)
    names = ("trial", "configuration", "throughput", history.space.objective.quality, *_MEMORY)
    gain = rows.row(best[0], history).factor
    return {
        **outcomes,
        **{f"baseline/{name}": columns[name][0] for name in names},
        **{f"winner/{name}": columns[name][1] for name in names},
        "gain/factor": _value(gain),
        "gain/low": gain.low if gain else None,
        "gain/high": gain.high if gain else None,
        "gain/is_confirmed": best[1] is not None,
    }


def _value(figure: Figure | None) -> float | None:
    return figure.value if figure else None
