"""A session's results as tables and figures for external trackers. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.core.secrecy import cleaned
from autotune.core.settings import Setting
from autotune.core.trial import Trial
from autotune.display import rows, view
from autotune.display.rows import TrialRow
from autotune.judging.decisions import confirm
from autotune.judging.decisions.history import History
from autotune.judging.measurement.estimates import Figure

Value = str | bool | int | float | None


@dataclass(frozen=True)
class Rows:
    """Table with named columns and one value per column in every row."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]


def table(trials: Sequence[Trial], history: History) -> Rows:
    """Returns one row per trial; the values of a column have one type, or are None.

    Figures cover all valid runs of a trial's settings, or the single run of a repeat; columns with the prefix
    `run_` are measured in the trial's own run.
    """
    space = history.space
    columns = (
        *("trial", "repeat_of", "ablation_of", "configuration", *space.knobs),
        *("throughput", "factor", space.objective.quality),
        *("peak_memory_bytes", "memory_is_rising", "memory_share"),
        *("run_throughput", f"run_{space.objective.quality}"),
        *("outcome", "reason"),
    )
    mixed = {name for name in space.knobs if _is_mixed([t.config.get(name) for t in trials])}
    return Rows(columns, tuple(_row(trial, history, mixed) for trial in trials))


def _row(trial: Trial, history: History, mixed: set[str]) -> tuple[Value, ...]:
    shown, space = rows.row(trial, history), history.space
    return (
        *(shown.number, shown.repeats, trial.ablation_of, cleaned(shown.knobs)),
        *(_shown(trial.config.get(name), as_text=name in mixed) for name in space.knobs),
        *(_value(shown.throughput), _value(shown.factor), shown.quality),
        *(shown.peak_memory_bytes, shown.memory_is_rising, shown.memory_share),
        *(_value(shown.run.throughput), shown.run.quality),
        *(str(trial.outcome or ""), cleaned(shown.reason)),
    )


def _is_mixed(values: Sequence[Setting]) -> bool:
    kinds = {float if type(value) is int else type(value) for value in values if value is not None}
    return len(kinds) > 1


def _shown(value: Setting, *, as_text: bool) -> Value:
    shown: Value = cleaned(str(value) if as_text else value)
    return shown


def figures(history: History) -> dict[str, Value]:
    """Returns the winner's and the baseline's figures, and the gain; without a winner only outcome counts."""
    values: dict[str, Value] = {"outcomes": view.counts(history.trials)}
    baseline, best = history.baseline, confirm.recommended(history)
    if baseline is None or best is None:
        return values
    winner = rows.row(best[0], history)
    return {
        **values,
        **_side("baseline", rows.row(baseline, history), history.space.objective.quality),
        **_side("winner", winner, history.space.objective.quality),
        "gain/factor": _value(winner.factor),
        "gain/low": winner.factor.low if winner.factor else None,
        "gain/high": winner.factor.high if winner.factor else None,
        "gain/is_confirmed": best[1] is not None,
    }


def _side(who: str, row: TrialRow, quality: str) -> dict[str, Value]:
    return {
        f"{who}/trial": row.number,
        f"{who}/configuration": cleaned(row.knobs),
        f"{who}/throughput": _value(row.throughput),
        f"{who}/{quality}": row.quality,
        f"{who}/peak_memory_bytes": row.peak_memory_bytes,
        f"{who}/memory_is_rising": row.memory_is_rising,
        f"{who}/memory_share": row.memory_share,
    }


def _value(found: Figure | None) -> float | None:
    return found.value if found else None
