"""How the search went: trial by trial, what mattered, and every configuration at once. Pure functions."""

from collections.abc import Mapping, Sequence
from typing import Any

from autotune.judging.estimates import Figure
from autotune.reports import marks, words
from autotune.reports.marks import Mark
from autotune.reports.model import Report, Row
from autotune.reports.plot import TRIALS, Plot, Table, Trace, layout, line, per_s, plain, points

_BEST = Mark("best so far that keeps the quality", "var(--winner)", "line")
_OBJECTIVES = ("var(--completed)", "var(--phase-4)")
_ROW_PX = 38
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


def _running_best(rows: Sequence[Row]) -> list[tuple[int, float]]:
    """Where a trial that keeps the quality was faster than those before it."""
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


def importance(report: Report) -> Plot | None:
    """How much each knob matters for an objective, with intervals, the first objective's largest first."""
    if not any(report.importance.values()):
        return None
    objectives = list(report.importance)
    knobs = sorted(
        {knob for shares in report.importance.values() for knob in shares},
        key=lambda knob: [-_share(report, name, knob).value for name in objectives],
    )
    names = [Mark(words.metric(n), _OBJECTIVES[min(i, 1)], "bar") for i, n in enumerate(objectives)]
    return Plot(
        id="importance",
        title="Which knobs matter",
        axes=_measured_by(report),
        label="; ".join(
            _most(mark.label, report.importance[name]) for mark, name in zip(names, objectives, strict=True)
        ),
        data=[
            {
                "type": "bar",
                "orientation": "h",
                "name": mark.label,
                "y": [plain(knob) for knob in knobs],
                "x": [_share(report, name, knob).value for knob in knobs],
                "error_x": _errors([_share(report, name, knob) for knob in knobs]),
                "hovertemplate": f"%{{y}}: %{{x:.0%}} of {plain(mark.label)}<extra></extra>",
                "marker": {"color": mark.colour},
            }
            for mark, name in zip(names, objectives, strict=True)
        ],
        layout=layout(
            60 + _ROW_PX * len(knobs),
            xaxis={"tickformat": ".0%", "rangemode": "tozero"},
            yaxis={
                "autorange": "reversed",
                "showgrid": False,
                "tickfont": {"color": "var(--ink)", "size": 12},
            },
            bargap=0.4,
        ),
        legend=tuple(names),
        table=Table(
            ("knob", *(mark.label for mark in names)),
            tuple(
                (knob, *(_told(report.importance[name].get(knob)) for name in objectives)) for knob in knobs
            ),
            numeric=tuple(range(1, len(names) + 1)),
        ),
    )


def _measured_by(report: Report) -> str:
    """What the shares are of."""
    by = {
        name: "of all that the changes of the ablation have moved"
        if name == "throughput" and report.ablation
        else "of what sets the best trials apart (PED-ANOVA)"
        for name in report.importance
    }
    told = "; ".join(f"{words.metric(name)}: {what}" for name, what in by.items())
    return f"Share of each knob that may move it, with 95% intervals. {told}."


def _share(report: Report, objective: str, knob: str) -> Figure:
    return report.importance[objective].get(knob, Figure(0.0))


def _errors(shares: Sequence[Figure]) -> dict[str, Any]:
    above = [(share.high if share.high is not None else share.value) - share.value for share in shares]
    below = [share.value - (share.low if share.low is not None else share.value) for share in shares]
    look = {"color": "var(--ink)", "thickness": 1, "width": 3}
    return {"type": "data", "symmetric": False, "array": above, "arrayminus": below} | look


def _told(share: Figure | None) -> str:
    """`42% (31% to 53%)`."""
    if share is None:
        return words.NOTHING
    return f"{words.share(share.value)} ({words.share(share.low)} to {words.share(share.high)})"


def _most(objective: str, shares: Mapping[str, Figure]) -> str:
    knob = max(shares, key=lambda name: shares[name].value)
    return f"{objective}: most by {knob}, {_told(shares[knob])}"
