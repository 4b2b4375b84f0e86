"""What a session has found, as rows and figures for services that keep it elsewhere. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.core.secrecy import cleaned
from autotune.core.settings import Setting
from autotune.core.trial import Measurement, Trial
from autotune.display import view
from autotune.judging import confirm, gains, objective, quality, reasons
from autotune.judging.estimates import Figure
from autotune.judging.history import History

Value = str | bool | int | float | None


@dataclass(frozen=True)
class Rows:
    """A table: the names of its columns, and a value for each of them in every row."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]


def table(trials: Sequence[Trial], history: History) -> Rows:
    """Every one of `trials`; a column has values of one kind, or None.

    Figures are what is known of a trial's settings, over all runs that count, of a repeat its run's;
    `run_` is what its own run has read.
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
    knobs = [_shown(trial.config.get(name), as_text=name in mixed) for name in history.space.knobs]
    shown = history.shown(trial)
    return (
        *(trial.number, trial.repeat.of if trial.repeat else None, trial.ablation_of),
        *(cleaned(view.knobs(trial.config)), *knobs),
        *(_value(shown.throughput), _value(gains.gain(trial, history)), shown.quality),
        *_memory(shown.memory),
        *(trial.samples_per_s, quality.shown(trial.quality, history.space.objective)),
        *(str(trial.outcome or ""), cleaned(reasons.why(trial, history))),
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
    baseline, best = history.baseline, confirm.recommended(history)
    if baseline is None or best is None:
        return found
    winner, claim = best
    gain = gains.gain(winner, history)
    return {
        **found,
        **_side("baseline", baseline, history),
        **_side("winner", winner, history),
        "gain/factor": _value(gain),
        "gain/low": gain.low if gain else None,
        "gain/high": gain.high if gain else None,
        "gain/is_confirmed": claim is not None,
    }


def _side(who: str, trial: Trial, history: History) -> dict[str, Value]:
    peak_bytes, is_rising, share = _memory(history.memory(trial))
    goal = history.space.objective
    return {
        f"{who}/trial": trial.number,
        f"{who}/configuration": cleaned(view.knobs(trial.config)),
        f"{who}/throughput": _value(history.throughput(trial)),
        f"{who}/{goal.quality}": _value(quality.shown_figure(history.quality(trial), goal)),
        f"{who}/peak_memory_bytes": peak_bytes,
        f"{who}/memory_is_rising": is_rising,
        f"{who}/memory_share": share,
    }


def _memory(found: Measurement) -> tuple[int | None, bool, float | None]:
    """The peak, whether it still rose, and its share of what the trial was allowed."""
    return found.peak_memory_bytes, found.memory_is_rising, objective.memory_share(found)


def _value(found: Figure | None) -> float | None:
    return found.value if found else None
