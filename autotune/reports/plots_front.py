"""Plots of the trials of a search: throughput against quality, and in order. Pure functions."""

from collections.abc import Sequence
from typing import Any

from autotune.display import words
from autotune.display.rows import TrialRow
from autotune.judging.measurement.estimates import Figure
from autotune.reports import answer, marks, plot
from autotune.reports.marks import Mark
from autotune.reports.model import SessionReport
from autotune.reports.plot import Plot, Trace

_LINE = Mark("Pareto front", "var(--completed)", "line")
_KEPT = Mark("region that keeps the quality", "var(--keep)", "region")
_BEST = Mark("best so far that keeps the quality", "var(--winner)", "line")
_FEW = 12  # trials whose numbers all fit on the axis
_RUG_TOP, _PLOT_FROM = 0.055, 0.13  # shares of the height


def front(report: SessionReport) -> Plot | None:
    """Returns throughput against quality; None before a trial has a throughput."""
    measured = [r for r in report.trials if r.throughput is not None]
    if not measured:
        return None
    placed = [r for r in measured if plot.quality(r) is not None]
    # Their quality, after fewer samples, would look worse than it is.
    rug = marks.grouped(r for r in measured if plot.quality(r) is None)
    name, least = words.metric(report.quality), report.least_quality
    best = sorted((r for r in placed if r.on_front), key=plot.per_s)
    chosen = _chosen(report, placed)
    single = marks.grouped(r for r in placed if r.number not in chosen)
    values = [least, *map(plot.quality, placed)]
    values += [end for _, score, _ in chosen.values() for end in (score.value, score.low, score.high)]
    numbers = [value for value in values if value is not None] or [0.0, 1.0]
    room = (max(numbers) - min(numbers)) * 0.06 or 0.01
    ends = min(numbers) - room, max(numbers) + room
    may_win = [r for r in placed if not r.breaks_constraint]
    kept = sum(r.keeps_quality is True for r in may_win)
    occurring = dict.fromkeys([mark for mark, _ in [*rug, *single]] + [mark for mark, *_ in chosen.values()])
    return Plot(
        id="front",
        title=f"Throughput against {name}",
        axes=f"↑ {report.axis}. The best are at the {'bottom' if report.minimize else 'top'} right. "
        "Crosses are intervals.",
        label=f"{words.plural(len(placed), 'trial')} with throughput and {name}: {kept} with "
        f"{report.no_worse}, {len(best)} on the Pareto front. {report.answer.sentence}",
        data=[
            plot.line(_LINE, [plot.per_s(r) for r in best], [plot.quality(r) for r in best], 1.5),
            *plot.points(single, plot.per_s, plot.quality, report),
            *(trace for *_, trace in chosen.values()),
            *(trace | {"yaxis": "y2"} for trace in plot.points(rug, plot.per_s, lambda _: 0, report)),
        ],
        layout=_layout(report, ends, has_rug=bool(rug)),
        legend=(*reversed(occurring), _LINE, *([] if least is None else [_KEPT])),
        elsewhere=plot.TRIALS,
    )


def _layout(report: SessionReport, ends: tuple[float, float], *, has_rug: bool) -> dict[str, Any]:
    layout: dict[str, Any] = {
        "height": 500,
        "xaxis": {
            "title": f"{report.unit} per second",
            "rangemode": "tozero",
            "anchor": "y2" if has_rug else "y",
        },
        "yaxis": {"range": list(ends), "domain": [_PLOT_FROM if has_rug else 0, 1]},
        "shapes": [],
        "annotations": [],
    }
    if (least := report.least_quality) is not None:
        # The text is inside the region: below its edge if lower is better.
        text = f"{report.limit}: {words.score(least)}" if report.target is None else report.limit
        anchor, end = ("top", ends[0]) if report.minimize else ("bottom", ends[1])
        note = {"text": plot.escape(text), "x": 0.004, "y": least, "yref": "y", "yanchor": anchor}
        layout["annotations"].append(note)
        edge = plot.horizontal(least, "var(--muted)")
        look = {"type": "rect", "fillcolor": "var(--keep)", "line": {"width": 0}}
        layout["shapes"] += [edge | look | {"y1": end}, edge]
    if has_rug:
        text = f"not trained to the end: no {plot.escape(words.metric(report.quality))} to compare"
        layout["annotations"].append({"text": text, "x": 0.004, "y": _RUG_TOP, "yref": "paper"})
        hidden = {"showticklabels": False, "showgrid": False, "fixedrange": True}
        layout["yaxis2"] = {"domain": [0, _RUG_TOP], "range": [-1, 1], **hidden}
    return layout


def _chosen(report: SessionReport, placed: Sequence[TrialRow]) -> dict[int, tuple[Mark, Figure, Trace]]:
    """Returns the baseline and the winner by number, each at the means of its runs, with its quality."""
    rows, chosen = {r.number: r for r in placed}, {}
    for mark, side in answer.sides(report):
        speed, score, row = side.throughput, side.quality, rows.get(side.trial)
        if speed is None or score is None or row is None:
            continue
        text = plot.hover_text(row, report)
        if max(side.runs, side.seeds) > 1:
            rate = f"{words.rate(speed)} {report.unit}/s, {words.plural(side.runs, 'run')}"
            seeds = words.plural(side.seeds, "seed")
            reached = f"{words.metric(report.quality)} {words.score(score)}, {seeds}"
            means = plot.lines(f"{mark.label}, means of its runs", side.knobs, rate, reached)
            text = f"<b>Trial {row.number}</b> {means}"
        (trace,) = plot.points([(mark, [row])], plot.per_s, plot.quality, report)
        errors = {"error_x": _error(speed, mark.colour), "error_y": _error(score, mark.colour)}
        trace |= {"x": [speed.value], "y": [score.value], "text": [text], **errors}
        chosen[row.number] = mark, score, trace
    return chosen


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
    speeds = [plot.per_s(r) for r in report.trials if r.throughput is not None]
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
        step = plot.line(_BEST, x, y)
        steps = [step | {"line": {**step["line"], "shape": "hv"}}]
    return Plot(
        id="history",
        title="Throughput, trial by trial",
        axes=f"↑ {report.unit} per second. Trials that were not measured are at the bottom.",
        label=label,
        data=[*steps, *plot.points(groups, lambda r: r.number, plot.per_s, report)],
        layout={
            "height": 340,
            "xaxis": {"title": "trial", **({"dtick": 1} if len(report.trials) < _FEW else {})},
            "yaxis": {"range": [-0.03 * highest, 1.08 * highest]},
        },
        legend=(*(mark for mark, _ in reversed(groups)), *([_BEST] if best else [])),
        elsewhere=plot.TRIALS,
    )


def _running_best(rows: Sequence[TrialRow]) -> list[tuple[int, float]]:
    """Returns number and throughput of every trial that keeps the quality and was the fastest so far."""
    best: list[tuple[int, float]] = []
    for row in rows:
        if row.kind in {"race", "repeat", "ablation"} or row.throughput is None or row.status != "completed":
            continue
        may_win = row.kind == "baseline" or (row.keeps_quality and not row.breaks_constraint)
        if may_win and (not best or plot.per_s(row) > best[-1][1]):
            best.append((row.number, plot.per_s(row)))
    return best
