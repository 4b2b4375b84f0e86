"""The colour, marker and name of trials, precisions, models and phases, the same in plots and tables."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from autotune.core.measurement import PHASES
from autotune.core.settings import PRECISION, PRECISIONS
from autotune.display.rows import TrialRow


@dataclass(frozen=True)
class Mark:
    """An entry of a legend."""

    label: str
    colour: str  # a CSS variable, so that plots follow light, dark and print
    symbol: str  # one of plotly's markers, or `line`, `dash`, `dot`, `bar`, `band`
    size: int = 8


# Marks that appear together differ by more than colour.
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
_ORDER = (AGAIN, OPEN, FAILED, OOM, STOPPED, BROKEN, LOST, COMPLETED, KEPT, BASELINE, WINNER)

_SYMBOLS = {"circle": 8, "triangle-right": 9, "square": 8, "triangle-up": 9, "pentagon": 9, "hexagram": 10}
_PRECISIONS = {
    name: Mark(name, f"var(--{name})", *look) for name, look in zip(PRECISIONS, _SYMBOLS.items(), strict=True)
}


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
    groups: dict[Mark, list[TrialRow]] = {mark: [] for mark in _ORDER}
    for row in rows:
        groups[by(row)].append(row)
    return [(mark, members) for mark, members in groups.items() if members]


def precision(name: str) -> Mark:
    return _PRECISIONS.get(name, Mark(name or "all trials", "var(--other)", "circle"))


def by_precision(rows: Iterable[TrialRow]) -> list[tuple[Mark, list[TrialRow]]]:
    """Groups trials by precision, the widest first."""
    groups: dict[str, list[TrialRow]] = {}
    for row in rows:
        groups.setdefault(str(row.config.get(PRECISION, "")), []).append(row)
    return [(precision(name), groups[name]) for name in _ordered(groups, PRECISIONS)]


def phases(occurring: Iterable[str]) -> list[Mark]:
    """Returns marks for the phases of a step in order, unknown ones last."""
    names = _ordered(occurring, [name.removesuffix("_s") for name in PHASES])
    return [Mark(name, f"var(--phase-{min(n, 5)})", "bar") for n, name in enumerate(names, start=1)]


def _ordered(names: Iterable[str], known: Collection[str]) -> list[str]:
    distinct = set(names)
    return [name for name in known if name in distinct] + sorted(distinct.difference(known))
