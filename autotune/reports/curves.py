"""Plots of curves over samples and over time. Pure functions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from autotune.core import units
from autotune.display import words
from autotune.reports.marks import Mark
from autotune.reports.plot import Plot, Table, Trace, escape, line

_ROOM_RIGHT = 1.03  # right end of the axis, relative to the last point
_MOST_MARKED = 60  # more markers would hide the dashes of the line
_MOST_ROWS = 240  # of a plot's table


@dataclass(frozen=True)
class CurvePoint:
    """The value of a figure after `samples` and `seconds` of training."""

    samples: int
    seconds: float
    value: float


Runs = Mapping[Mark, Sequence[Sequence[CurvePoint]]]  # one curve per run
Form = Callable[[float], str]


@dataclass(frozen=True)
class Axes:
    """The horizontal axis of a curve."""

    unit: str  # of work
    whole_s: float  # end of the time axis
    over: str = "time"  # or samples

    @property
    def x(self) -> dict[str, Any]:
        """Plotly's layout of the axis."""
        if self.over != "time":
            return {"title": self.unit, "rangemode": "tozero"}
        scale_s, name = self._time
        return {"title": f"{name} of training", "range": [0, _ROOM_RIGHT * self.whole_s / scale_s]}

    def places(self, points: Sequence[CurvePoint]) -> list[float]:
        """Returns the coordinates of points on this axis."""
        scale_s, _ = self._time
        return [p.seconds / scale_s if self.over == "time" else float(p.samples) for p in points]

    @property
    def _time(self) -> tuple[float, str]:
        """The unit of the time axis in seconds, and its name."""
        hours_or_minutes = ((3600.0, "hours"), (60.0, "minutes"))
        return next(((s, name) for s, name in hours_or_minutes if self.whole_s >= 2 * s), (1.0, "seconds"))


def draw_over_both(plot: Plot, runs: Runs, form: Form, axes: Axes) -> list[Plot]:
    """Returns the curves over samples and over time, with one table for both."""
    table = f"table-{plot.id}-samples", f"In the table of {plot.title} over {axes.unit}"
    over_time = _draw(plot, runs, form, axes)
    return [
        _draw(plot, runs, form, replace(axes, over="samples")),
        replace(over_time, table=None, elsewhere=table),
    ]


def _draw(plot: Plot, runs: Runs, form: Form, axes: Axes) -> Plot:
    """Returns `plot` with the curves of `runs` and a table; extends its layout."""
    data = [
        _trace(mark, run, form, axes, is_alone=len(each) == 1) for mark, each in runs.items() for run in each
    ]
    return replace(
        plot,
        id=f"{plot.id}-{axes.over}",
        title=f"{plot.title} over {'time' if axes.over == 'time' else axes.unit}",
        data=data,
        layout={"height": 330, "xaxis": axes.x, "yaxis": {}, **plot.layout},
        legend=tuple(runs) if len(runs) > 1 else (),
        table=_table(plot.title, runs, form, axes.unit),
    )


def _trace(mark: Mark, run: Sequence[CurvePoint], form: Form, axes: Axes, *, is_alone: bool) -> Trace:
    """Returns a curve with hover texts; it is thinner if it is one of several runs."""
    places = (f"{words.count(p.samples)} {axes.unit}, {words.duration(p.seconds)}" for p in run)
    texts = (f"{mark.label}: {form(p.value)} after {place}" for p, place in zip(run, places, strict=True))
    return line(
        mark,
        axes.places(run),
        [units.number(p.value) for p in run],
        2 if is_alone else 1.3,
        mode="lines+markers" if len(run) <= _MOST_MARKED else "lines",
        marker={"color": mark.colour, "size": 3},
        hoverinfo="text",
        text=[escape(text) for text in texts],
    )


def _table(title: str, runs: Runs, form: Form, unit: str) -> Table:
    """Returns evenly spaced points of every run, the last one included."""
    named = [
        (mark.label if len(each) == 1 else f"{mark.label}, run {n}", run)
        for mark, each in runs.items()
        for n, run in enumerate(each, start=1)
    ]
    most = _MOST_ROWS // len(named) or 1
    rows = tuple(
        (label, words.count(p.samples), words.duration(p.seconds), form(p.value))
        for label, run in named
        for p in reversed(run[:: -(-(-len(run) // most) or 1)])
    )
    return Table(("curve", unit, "time", title), rows, numeric=(1, 2, 3))
