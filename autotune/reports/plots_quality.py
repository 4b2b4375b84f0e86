"""Quality while training: over samples and over seconds, of runs and of compared models. Pure functions."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import cycle
from typing import Any

from autotune.core import units
from autotune.core.trial import Evaluation
from autotune.reports import marks, words
from autotune.reports.marks import Mark
from autotune.reports.model import Report, Row
from autotune.reports.plot import Plot, Table, Trace, layout, line, note, plain

_Series = dict[Mark, Sequence[tuple[Evaluation, ...]]]  # the curves of all runs of each
_DASHES = ("dash", "dot", "dashdot", "longdash")


def of_runs(report: Report) -> list[Plot]:
    """The baseline, the winner and the other finalists, all their runs; none before one was evaluated."""
    chosen = {r.number: marks.of(r) for r in report.trials if r.kind in {"baseline", "winner"}}
    repeated = {r.repeats for r in report.trials if r.kind == "repeat" and r.repeats is not None}
    for number, dash in zip(sorted(repeated - chosen.keys()), cycle(_DASHES), strict=False):
        chosen[number] = Mark(f"finalist, trial {number}", "var(--completed)", dash)
    series = {mark: _curves(number, report.trials) for number, mark in chosen.items()}
    found = {mark: curves for mark, curves in series.items() if curves}
    ends = {r.number: r.quality for r in report.trials}
    known = {mark: ends.get(number) for number, mark in chosen.items() if mark in found}
    return _plots("quality", "", report, found, known, **_sought(report))


def of_compared(report: Report) -> list[Plot]:
    """The models that were trained to be compared."""
    series: _Series = {marks.model(each.label): [each.curve] for each in report.compared if each.curve}
    ends = {marks.model(each.label): each.curve[-1].quality for each in report.compared if each.curve}
    return _plots("compared", ", by precision", report, series, ends)


def _curves(number: int, rows: Sequence[Row]) -> Sequence[tuple[Evaluation, ...]]:
    return [r.curve for r in rows if r.curve and number in {r.number, r.repeats}]


def _plots(
    prefix: str,
    of_what: str,
    report: Report,
    series: _Series,
    ends: Mapping[Mark, float | None],
    **sought: Any,
) -> list[Plot]:
    """The same curves over samples and over seconds, and where each of them `ends`; one table has both."""
    if not series:
        return []
    name = words.metric(report.quality)
    elsewhere = f"table-{prefix}-samples", f"In the table of {name} over {report.unit}"
    told = "; ".join(f"{mark.label} {words.score(value)}" for mark, value in ends.items())

    def plot(axis: str, unit: str) -> Plot:
        title = f"{name} over {report.unit if axis == 'samples' else axis}{of_what}"
        drawn = [
            _line(m, c, axis, len(curves), report.unit)
            for m, curves in reversed(series.items())
            for c in curves
        ]
        return Plot(
            id=f"{prefix}-{axis}",
            title=title,
            axes=f"↑ {words.axis(report)}",
            label=f"{title} of {words.plural(len(series), 'model')}; in the end: {told}",
            data=drawn,
            layout=layout(340, xaxis={"title": unit, "rangemode": "tozero"}, yaxis={}, **sought),
            legend=tuple(replace(m, symbol=m.symbol if m.symbol in _DASHES else "line") for m in series),
        )

    return [
        replace(plot("samples", report.unit), table=_table(name, series, report.unit)),
        replace(plot("seconds", "seconds of training"), elsewhere=elsewhere),
    ]


def _table(name: str, series: _Series, unit: str) -> Table:
    rows = (
        (mark.label, str(run), words.count(p.samples), words.duration(p.seconds), words.score(p.quality))
        for mark, curves in series.items()
        for run, curve in enumerate(curves, start=1)
        for p in curve
    )
    return Table(("model", "run", unit, "time", name), tuple(rows), numeric=(1, 2, 3, 4))


def _line(mark: Mark, curve: tuple[Evaluation, ...], axis: str, runs: int, unit: str) -> Trace:
    """A run of many is thinner than one alone."""
    texts = (
        f"{mark.label}: {words.score(p.quality)} after {words.count(p.samples)} {unit}, "
        f"{words.duration(p.seconds)}"
        for p in curve
    )
    return line(
        mark,
        [getattr(p, axis) for p in curve],
        [units.number(p.quality) for p in curve],
        2 if runs == 1 else 1.3,
        mode="lines+markers",
        marker={"color": mark.colour, "size": 4},
        hoverinfo="text",
        text=[plain(text) for text in texts],
    )


def _sought(report: Report) -> dict[str, Any]:
    """The quality to reach, or to keep of the baseline's."""
    at = report.least_quality if report.target is None else report.target
    if at is None:
        return {}
    edge = {"color": "var(--muted)", "width": 1, "dash": "dot"}
    across = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "yref": "y", "y0": at, "y1": at}
    text = f"{'to be kept' if report.target is None else 'target'}: {words.score(at)}"
    return {
        "shapes": [across | {"line": edge, "layer": "below"}],
        "annotations": [
            note(
                plain(text), 1, at, yref="y", xanchor="right", yanchor="bottom" if report.minimize else "top"
            )
        ],
    }
