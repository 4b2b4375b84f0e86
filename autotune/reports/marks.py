"""The colour, marker and name of trials, precisions, models and phases, the same in plots and tables.

Colours are CSS variables of `templates/report.css`, so that plots follow light, dark and print. Marks that
appear together differ by more than colour.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from autotune.core.measurement import PHASES
from autotune.core.settings import PRECISION, PRECISIONS
from autotune.display.rows import TrialRow


@dataclass(frozen=True)
class Mark:
    """An entry of a legend."""

    label: str
    colour: str
    symbol: str  # one of plotly's markers, or `line`, `dash`, `dot`, `bar`, `band`
    size: int = 8


WINNER = Mark("recommended", "var(--winner)", "star", 16)
BASELINE = Mark("baseline", "var(--baseline)", "diamond", 12)
KEPT = Mark("keeps the quality", "var(--completed)", "circle")
LOST = Mark("completed, quality not kept", "var(--completed)", "circle-open")
BROKEN = Mark("completed, breaks a constraint", "var(--completed)", "diamond-open")
COMPLETED = Mark("completed", "var(--completed)", "circle-open-dot")
STOPPED = Mark("stopped early", "var(--stopped)", "triangle-down-open", 9)
OOM = Mark("out of memory", "var(--failed)", "x")
FAILED = Mark("failed otherwise", "var(--failed)", "cross-open")
OPEN = Mark("not ended", "var(--stopped)", "square-open")
AGAIN = Mark("run again to confirm or explain", "var(--stopped)", "square", 5)

# The last is on top.
ORDER = (AGAIN, OPEN, FAILED, OOM, STOPPED, BROKEN, LOST, COMPLETED, KEPT, BASELINE, WINNER)

_SYMBOLS = {
    "circle": 8,
    "triangle-right": 9,
    "square": 8,
    "triangle-up": 9,
    "pentagon": 9,
    "hexagram": 10,
}
_PRECISIONS = {
    name: Mark(name, f"var(--{name})", *look) for name, look in zip(PRECISIONS, _SYMBOLS.items(), strict=True)
}

_PHASES = [name.removesuffix("_s") for name in PHASES]


def trial(row: TrialRow) -> Mark:
    """Returns the mark of a trial: its role, or else its outcome."""
    return {"winner": WINNER, "baseline": BASELINE}.get(row.kind) or outcome(row)


def outcome(row: TrialRow) -> Mark:
    """Returns the mark of a trial's outcome, also for the baseline and the winner."""
    if row.status == "failed":
        return OOM if row.failure == "oom" else FAILED
    if row.status != "completed":
        return STOPPED if row.status == "stopped" else OPEN
    if row.kind in {"race", "repeat", "ablation"}:
        return AGAIN
    if row.breaks_constraint:
        return BROKEN
    if row.keeps_quality is None:
        return KEPT if row.kind == "baseline" else COMPLETED
    return KEPT if row.keeps_quality else LOST


def grouped(
    rows: Iterable[TrialRow], by: Callable[[TrialRow], Mark] = trial
) -> list[tuple[Mark, list[TrialRow]]]:
    """Groups trials by mark, the most important last, so that nothing is drawn over them."""
    listed = list(rows)
    groups = [(mark, [row for row in listed if by(row) == mark]) for mark in ORDER]
    return [(mark, members) for mark, members in groups if members]


def precision(name: str) -> Mark:
    return _PRECISIONS.get(name, Mark(name or "all trials", "var(--other)", "circle"))


def model(label: str) -> Mark:
    """Returns the mark of a compared model: the mark of the baseline, or of the precision of the model."""
    return BASELINE if label == "baseline" else precision(label)


def precision_of(row: TrialRow) -> str:
    """Returns the precision of a trial; empty if it is not a setting."""
    return str(row.config.get(PRECISION, ""))


def precisions(rows: Iterable[TrialRow]) -> list[str]:
    """Returns the precisions that occur, widest first."""
    names = {precision_of(row) for row in rows}
    return [name for name in _PRECISIONS if name in names] + sorted(names - _PRECISIONS.keys())


def phases(occurring: Iterable[str]) -> list[Mark]:
    """Returns marks for the phases of a step in order, unknown ones last."""
    names = set(occurring)
    ordered = [name for name in _PHASES if name in names] + sorted(names - set(_PHASES))
    return [Mark(name, f"var(--phase-{min(n, 5)})", "bar") for n, name in enumerate(ordered, start=1)]
