"""Plots of quality over samples and over time, for runs and for compared models. Pure functions."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import cycle
from typing import Any

from autotune.core.measurement import Evaluation
from autotune.display import words
from autotune.reports import curves, marks
from autotune.reports.curves import Axes, CurvePoint, Runs
from autotune.reports.marks import Mark
from autotune.reports.model import SessionReport
from autotune.reports.plot import Plot, horizontal, note

_DASHES = ("dash", "dot", "dashdot", "longdash")


def search_runs(report: SessionReport) -> list[Plot]:
    """Plots the quality of every run of the baseline and the finalists; empty before an evaluation."""
    chosen = {r.number: marks.trial(r) for r in report.trials if r.kind in {"baseline", "winner"}}
    chosen = {number: replace(mark, symbol="line") for number, mark in chosen.items()}
    repeated = {r.repeats for r in report.trials if r.kind == "repeat" and r.repeats is not None}
    for number, dash in zip(sorted(repeated - chosen.keys()), cycle(_DASHES), strict=False):
        chosen[number] = Mark(f"finalist, trial {number}", "var(--completed)", dash)
    runs = {
        mark: [_curve(r.curve) for r in report.trials if r.curve and number in {r.number, r.repeats}]
        for number, mark in chosen.items()
    }
    qualities = {r.number: r.quality for r in report.trials}
    ends = {mark: qualities.get(number) for number, mark in chosen.items()}
    return _plots("quality", report, runs, ends, _limit(report))


def compared_models(report: SessionReport) -> list[Plot]:
    """Plots the quality of the compared models."""
    evaluated = {marks.model(each.label): each.curve for each in report.compared if each.curve}
    curves_by_mark = {replace(mark, symbol="line"): _curve(curve) for mark, curve in evaluated.items()}
    ends = {mark: curve[-1].value for mark, curve in curves_by_mark.items()}
    runs = {mark: [curve] for mark, curve in curves_by_mark.items()}
    return _plots("compared", report, runs, ends, {})


def _curve(evaluations: Sequence[Evaluation]) -> list[CurvePoint]:
    return [CurvePoint(e.samples, e.seconds, e.quality) for e in evaluations]


def _plots(
    name: str,
    report: SessionReport,
    every: Runs,
    ends: Mapping[Mark, float | None],
    layout: dict[str, Any],
) -> list[Plot]:
    """Returns the curves over samples and over time, labelled with the quality at their `ends`."""
    runs = {mark: each for mark, each in every.items() if each}
    if not runs:
        return []
    metric = words.metric(report.quality)
    ends_text = "; ".join(f"{mark.label} {words.score(ends[mark])}" for mark in runs)
    plot = Plot(
        id=name,
        title=metric if name == "quality" else f"{metric} by precision",
        axes=f"↑ {report.axis}",
        label=f"{metric} of {words.plural(len(runs), 'model')}; in the end: {ends_text}",
        layout=layout,
    )
    whole_s = max(run[-1].seconds for each in runs.values() for run in each)
    plots = curves.draw_over_both(plot, runs, words.score, Axes(report.unit, whole_s))
    return [replace(plot, data=plot.data[::-1]) for plot in plots]  # the baseline and the winner above others


def _limit(report: SessionReport) -> dict[str, Any]:
    """Draws the target, or the lowest quality that a winner may have."""
    at, name = report.target, "target"
    if at is None:
        at, name = report.least_quality, "to be kept"
    if at is None:
        return {}
    anchor = {"xanchor": "right", "yanchor": "bottom" if report.minimize else "top"}
    return {
        "shapes": [horizontal(at, "var(--muted)")],
        "annotations": [note(f"{name}: {words.score(at)}", 1, at, yref="y", **anchor)],
    }
