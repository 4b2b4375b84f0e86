"""Plots of the trials of a search: throughput against quality, and in order. Pure functions."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.display import words
from autotune.display.rows import TrialRow
from autotune.judging.measurement.estimates import Figure
from autotune.reports import answer, marks
from autotune.reports.marks import Mark
from autotune.reports.model import SessionReport, Side
from autotune.reports.plot import (
    TRIALS,
    Plot,
    Trace,
    escape,
    horizontal,
    hover_text,
    line,
    lines,
    note,
    per_s,
    points,
    quality,
)

_LINE = Mark("Pareto front", "var(--completed)", "line")
_KEPT = Mark("region that keeps the quality", "var(--keep)", "region")
_BEST = Mark("best so far that keeps the quality", "var(--winner)", "line")
_FEW = 12  # trials whose numbers all fit on the axis
_RUG_TOP, _PLOT_FROM = 0.055, 0.13  # shares of the height


def front(report: SessionReport) -> Plot | None:
    """Returns throughput against quality; None before a trial has a throughput.

    A configuration is placed by the mean of its runs, a repeat by its own run. A trial that has not completed
    is in a rug along the axis: its quality after fewer samples would look worse than it is.
    """
    measured = [r for r in report.trials if r.throughput is not None]
    placed = [r for r in measured if quality(r) is not None]
    rug = marks.grouped(r for r in measured if quality(r) is None)
    if not measured:
        return None
    name, least = words.metric(report.quality), report.least_quality
    best = sorted((r for r in placed if r.on_front), key=per_s)
    chosen = _chosen(report, placed)
    single = marks.grouped(r for r in placed if r not in [each.row for each in chosen])
    low, high = _range([least, *map(quality, placed), *(y for each in chosen for y in vars(each.y).values())])
    occurring = dict.fromkeys([*(mark for mark, _ in [*rug, *single]), *(each.mark for each in chosen)])
    limits: dict[str, Any] = {"shapes": [], "annotations": []}
    if least is not None:
        # The text is inside the region: below its edge if lower is better.
        text = f"{report.limit}: {words.score(least)}" if report.target is None else report.limit
        anchor, end = ("top", low) if report.minimize else ("bottom", high)
        limits["annotations"].append(note(escape(text), 0.004, least, yref="y", yanchor=anchor))
        edge = horizontal(least, "var(--muted)")
        look = {"type": "rect", "fillcolor": "var(--keep)", "line": {"width": 0}}
        limits["shapes"] += [edge | look | {"y1": end}, edge]
    if rug:
        text = f"not trained to the end: no {escape(name)} to compare"
        limits["annotations"].append(note(text, 0.004, _RUG_TOP, yref="paper"))
    return Plot(
        id="front",
        title=f"Throughput against {name}",
        axes=f"↑ {report.axis}. The best are at the {'bottom' if report.minimize else 'top'} right. "
        "Crosses are intervals.",
        label=_label(report, placed, name),
        data=[
            line(_LINE, [per_s(r) for r in best], [quality(r) for r in best], 1.5),
            *(points(rows, mark, per_s, quality, report) for mark, rows in single),
            *(_drawn(each, report) for each in chosen),
            *(points(rows, mark, per_s, lambda _: 0, report) | {"yaxis": "y2"} for mark, rows in rug),
        ],
        layout={
            "height": 500,
            "xaxis": {
                "title": f"{report.unit} per second",
                "rangemode": "tozero",
                "anchor": "y2" if rug else "y",
            },
            "yaxis": {"range": [low, high], "domain": [_PLOT_FROM if rug else 0, 1]},
            **({"yaxis2": _RUG_AXIS} if rug else {}),
            **limits,
        },
        legend=(*reversed(occurring), _LINE, *([] if least is None else [_KEPT])),
        elsewhere=TRIALS,
    )


@dataclass(frozen=True)
class _Chosen:
    """The baseline or the winner: its trial, and its place in the plot."""

    mark: Mark
    side: Side
    row: TrialRow
    x: Figure
    y: Figure


def _chosen(report: SessionReport, placed: Sequence[TrialRow]) -> list[_Chosen]:
    rows = {r.number: r for r in placed}
    return [
        _Chosen(mark, side, rows[side.trial], side.throughput, side.quality)
        for mark, side in answer.sides(report)
        if side.throughput is not None and side.quality is not None and side.trial in rows
    ]


def _drawn(each: _Chosen, report: SessionReport) -> Trace:
    score = f"{words.metric(report.quality)} {words.score(each.y)}, {words.plural(each.side.seeds, 'seed')}"
    speed = f"{words.rate(each.x)} {report.unit}/s, {words.plural(each.side.runs, 'run')}"
    text = hover_text(each.row, report)
    if max(each.side.runs, each.side.seeds) > 1:
        means = lines(f"{each.mark.label}, means of its runs", each.side.knobs, speed, score)
        text = f"<b>Trial {each.row.number}</b> {means}"
    return points([each.row], each.mark, lambda _: each.x.value, lambda _: each.y.value, report) | {
        "text": [text],
        "error_x": _error(each.x, each.mark.colour),
        "error_y": _error(each.y, each.mark.colour),
    }


_RUG_AXIS: dict[str, Any] = {
    "domain": [0, _RUG_TOP],
    "range": [-1, 1],
    "showticklabels": False,
    "showgrid": False,
    "fixedrange": True,
}


def _label(report: SessionReport, placed: Sequence[TrialRow], name: str) -> str:
    may_win = [r for r in placed if not r.breaks_constraint]
    kept, best = sum(r.keeps_quality is True for r in may_win), sum(r.on_front for r in placed)
    return (
        f"{words.plural(len(placed), 'trial')} with throughput and {name}: {kept} with "
        f"{report.no_worse}, {best} on the Pareto front. {report.answer.sentence}"
    )


def _range(values: Iterable[float | None]) -> tuple[float, float]:
    numbers = [value for value in values if value is not None] or [0.0, 1.0]
    room = (max(numbers) - min(numbers)) * 0.06 or 0.01
    return min(numbers) - room, max(numbers) + room


def _error(figure: Figure, colour: str) -> dict[str, Any]:
    if figure.low is None or figure.high is None:
        return {"visible": False}
    return {
        "type": "data",
        "symmetric": False,
        "array": [figure.high - figure.value],
        "arrayminus": [figure.value - figure.low],
        "color": colour,
        "thickness": 1.2,
        "width": 0,
    }


def history(report: SessionReport) -> Plot | None:
    """Returns throughput by trial number with the running best; None before a throughput was measured."""
    speeds = [per_s(r) for r in report.trials if r.throughput is not None]
    if not speeds:
        return None
    best, highest, groups = _running_best(report.trials), max(speeds), marks.grouped(report.trials)
    label = (
        f"{words.plural(len(speeds), 'trial')} measured, the fastest {words.rate(highest)} {report.unit}/s."
    )
    steps = []
    if best:
        number, speed = best[-1]
        label += f" Best that keeps the quality: {words.rate(speed)}, since trial {number}."
        x, y = zip(*best, (report.trials[-1].number, speed), strict=True)
        step = line(_BEST, x, y)
        steps = [step | {"line": {**step["line"], "shape": "hv"}}]
    return Plot(
        id="history",
        title="Throughput, trial by trial",
        axes=f"↑ {report.unit} per second. Trials that were not measured are at the bottom.",
        label=label,
        data=[*steps, *(points(rows, mark, lambda r: r.number, per_s, report) for mark, rows in groups)],
        layout={
            "height": 340,
            "xaxis": {"title": "trial", **({"dtick": 1} if len(report.trials) < _FEW else {})},
            "yaxis": {"range": [-0.03 * highest, 1.08 * highest]},
        },
        legend=(*(mark for mark, _ in reversed(groups)), *([_BEST] if best else [])),
        elsewhere=TRIALS,
    )


def _running_best(rows: Sequence[TrialRow]) -> list[tuple[int, float]]:
    """Returns number and throughput of every trial that keeps the quality and was the fastest so far."""
    best: list[tuple[int, float]] = []
    for row in rows:
        if row.kind in {"race", "repeat", "ablation"} or row.throughput is None or row.status != "completed":
            continue
        may_win = row.kind == "baseline" or (row.keeps_quality and not row.breaks_constraint)
        if may_win and (not best or per_s(row) > best[-1][1]):
            best.append((row.number, per_s(row)))
    return best
