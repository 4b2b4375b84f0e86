"""The course of the search, trial by trial. Pure functions."""

from collections.abc import Sequence

from autotune.display import words
from autotune.display.rows import TrialRow
from autotune.reports import marks
from autotune.reports.marks import Mark
from autotune.reports.model import Report
from autotune.reports.plot import TRIALS, Plot, Trace, layout, line, per_s, points

_BEST = Mark("best so far that keeps the quality", "var(--winner)", "line")
_FEW = 12  # trials of which each number has room on the axis


def history(report: Report) -> Plot | None:
    """Throughput by trial number with the running best; None before one was measured."""
    rows = [r for r in report.trials if r.throughput is not None]
    unmeasured = [r for r in report.trials if r.throughput is None]
    if not rows:
        return None
    best = _running_best(report.trials)
    highest = max(per_s(r) for r in rows)
    shown = marks.grouped([*rows, *unmeasured])
    return Plot(
        id="history",
        title="Throughput, trial by trial",
        axes=f"↑ {report.unit} per second. Trials that were not measured are at the bottom.",
        label=f"{words.plural(len(rows), 'trial')} measured, the fastest {words.rate(highest)} "
        f"{report.unit}/s. "
        + (
            f"Best that keeps the quality: {words.rate(best[-1][1])}, since trial {best[-1][0]}."
            if best
            else ""
        ),
        data=[
            *_steps(best, report.trials[-1].number),
            *(points(found, mark, lambda r: r.number, per_s, report) for mark, found in shown),
        ],
        layout=layout(
            340,
            xaxis={"title": "trial", **({"dtick": 1} if len(report.trials) < _FEW else {})},
            yaxis={"range": [-0.03 * highest, 1.08 * highest]},
        ),
        legend=(*(mark for mark, _ in reversed(shown)), *([_BEST] if best else [])),
        elsewhere=TRIALS,
    )


def _running_best(rows: Sequence[TrialRow]) -> list[tuple[int, float]]:
    """Returns the trials that keep the quality and were faster than those before them, with their speeds."""
    found: list[tuple[int, float]] = []
    for row in rows:
        if row.kind in {"race", "repeat", "ablation"} or row.throughput is None or row.status != "completed":
            continue
        may_win = row.kind == "baseline" or (row.keeps_quality and not row.breaks_constraint)
        if may_win and (not found or per_s(row) > found[-1][1]):
            found.append((row.number, per_s(row)))
    return found


def _steps(best: Sequence[tuple[int, float]], last: int) -> list[Trace]:
    if not best:
        return []
    x, y = [n for n, _ in best], [value for _, value in best]
    trace = line(_BEST, [*x, last], [*y, y[-1]], 2)
    return [trace | {"line": {**trace["line"], "shape": "hv"}}]
