"""Plots of quality over samples and over time, for runs and for compared models. Pure functions."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import cycle
from typing import Any

from autotune.core import units
from autotune.core.measurement import Evaluation
from autotune.display import words
from autotune.reports import marks
from autotune.reports.marks import Mark
from autotune.reports.model import SessionReport
from autotune.reports.plot import Plot, Table, Trace, escape, horizontal, line

_DASHES = ("dash", "dot", "dashdot", "longdash")
_ROOM_RIGHT = 1.03  # right end of the time axis, relative to the last point
_MOST_MARKED = 60  # more markers would hide the dashes of the line
_MOST_ROWS = 240  # of a plot's table
_TIMES = ((3600.0, "hours"), (60.0, "minutes"))  # used from two of them on

_Runs = Mapping[Mark, Sequence[Sequence[Evaluation]]]  # one curve per run


def search_runs(report: SessionReport) -> list[Plot]:
    """Plots the quality of every run of the baseline and the finalists; empty before an evaluation."""
    chosen = {r.number: marks.trial(r) for r in report.trials if r.kind in {"baseline", "winner"}}
    chosen = {number: replace(mark, symbol="line") for number, mark in chosen.items()}
    repeated = {r.repeats for r in report.trials if r.kind == "repeat" and r.repeats is not None}
    for number, dash in zip(sorted(repeated - chosen.keys()), cycle(_DASHES), strict=False):
        chosen[number] = Mark(f"finalist, trial {number}", "var(--completed)", dash)
    runs = {
        mark: [r.curve for r in report.trials if r.curve and number in {r.number, r.repeats}]
        for number, mark in chosen.items()
    }
    qualities = {r.number: r.quality for r in report.trials}
    ends = {mark: qualities.get(number) for number, mark in chosen.items()}
    at, name = report.target, "target"
    if at is None:
        at, name = report.least_quality, "to be kept"
    layout: dict[str, Any] = {}
    if at is not None:
        side = "bottom" if report.minimize else "top"
        note = {"text": f"{name}: {words.score(at)}", "x": 1, "y": at, "yref": "y"}
        layout = {
            "shapes": [horizontal(at, "var(--muted)")],
            "annotations": [{**note, "xanchor": "right", "yanchor": side}],
        }
    return _plots("quality", report, runs, ends, layout)


def compared_models(report: SessionReport) -> list[Plot]:
    """Plots the quality of the compared models."""
    runs = {}
    for each in report.compared:
        mark = marks.BASELINE if each.label == "baseline" else marks.precision(each.label)
        if each.curve:
            runs[replace(mark, symbol="line")] = [each.curve]
    ends = {mark: curve[-1].quality for mark, (curve,) in runs.items()}
    return _plots("compared", report, runs, ends, {})


def _plots(
    name: str, report: SessionReport, every: _Runs, ends: Mapping[Mark, float | None], layout: dict[str, Any]
) -> list[Plot]:
    """Returns the curves over samples and over time, labelled with the quality at their `ends`."""
    runs = {mark: each for mark, each in every.items() if each}
    if not runs:
        return []
    whole_s = max(run[-1].seconds for each in runs.values() for run in each)
    unit_s, time = next((each for each in _TIMES if whole_s >= 2 * each[0]), (1.0, "seconds"))
    metric, models = words.metric(report.quality), words.plural(len(runs), "model")
    title = metric if name == "quality" else f"{metric} by precision"
    ends_text = "; ".join(f"{mark.label} {words.score(ends[mark])}" for mark in runs)
    over_samples = Plot(
        id=f"{name}-samples",
        title=f"{title} over {report.unit}",
        axes=f"↑ {report.axis}",
        label=f"{metric} of {models}; in the end: {ends_text}",
        data=_traces(runs, report.unit, None)[::-1],  # the baseline and the winner on top
        layout={"height": 330, "xaxis": {"title": report.unit, "rangemode": "tozero"}, "yaxis": {}, **layout},
        legend=tuple(runs) if len(runs) > 1 else (),
        table=_table(title, runs, report.unit),
    )
    time_axis = {"title": f"{time} of training", "range": [0, _ROOM_RIGHT * whole_s / unit_s]}
    over_time = replace(
        over_samples,
        id=f"{name}-time",
        title=f"{title} over time",
        data=_traces(runs, report.unit, unit_s)[::-1],
        layout={**over_samples.layout, "xaxis": time_axis},
        table=None,
        elsewhere=(f"table-{over_samples.id}", f"In the table of {over_samples.title}"),
    )
    return [over_samples, over_time]


def _traces(runs: _Runs, unit: str, unit_s: float | None) -> list[Trace]:
    """Returns a curve for each run, thinner if there are several; over samples if `unit_s` is None."""
    traces = []
    for mark, each in runs.items():
        for run in each:
            texts = (
                f"{mark.label}: {words.score(point.quality)} after "
                f"{words.count(point.samples)} {unit}, {words.duration(point.seconds)}"
                for point in run
            )
            trace = line(
                mark,
                [float(point.samples) if unit_s is None else point.seconds / unit_s for point in run],
                [units.number(point.quality) for point in run],
                2 if len(each) == 1 else 1.3,
                mode="lines+markers" if len(run) <= _MOST_MARKED else "lines",
                marker={"color": mark.colour, "size": 3},
                hoverinfo="text",
                text=list(map(escape, texts)),
            )
            traces.append(trace)
    return traces


def _table(title: str, runs: _Runs, unit: str) -> Table:
    """Returns evenly spaced points of every run, the last one included."""
    most = _MOST_ROWS // sum(map(len, runs.values())) or 1
    rows = []
    for mark, each in runs.items():
        for n, run in enumerate(each, start=1):
            label = mark.label if len(each) == 1 else f"{mark.label}, run {n}"
            step = -(-len(run) // most)
            for point in reversed(run[::-step]):
                place = words.count(point.samples), words.duration(point.seconds)
                rows.append((label, *place, words.score(point.quality)))
    return Table(("curve", unit, "time", title), tuple(rows), numeric=(1, 2, 3))
