"""A plot of the report: a plotly figure as plain data, and what replaces it for readers who cannot see.

Figures are written by hand as plotly's JSON: importing its Python API takes seconds.
"""

import html
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from autotune.core import units
from autotune.core.errors import printable
from autotune.display import words
from autotune.display.rows import TrialRow
from autotune.reports import marks
from autotune.reports.marks import Mark
from autotune.reports.model import Report

Trace = dict[str, Any]
TRIALS = ("trials", "All trials as a table")
_WIDEST = 46  # characters of a line in a hover
_CROWD = 300  # trials from which on their markers are smaller, but not those of the baseline and the winner
_CHOSEN_SIZE = 12
_ROW_PX, _BAR = 56, 0.42  # height of a row of bars, and what of it is bar
_AXIS_TITLE = {"font": {"color": "var(--muted)", "size": 12}, "standoff": 10}
_TITLE = {"font": {"color": "var(--ink)", "size": 13}}


@dataclass(frozen=True)
class Table:
    """Figures as text, row by row; the columns numbered in `numeric` are set flush right."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[int, ...] = ()


@dataclass(frozen=True)
class Plot:
    """`axes` says what its directions mean, `label` what a sighted reader would take from it.

    `elsewhere` is the id of a table that has its figures, too, and its name; `least_px` the width below
    which it scrolls.
    """

    id: str
    title: str
    axes: str
    label: str = ""
    data: list[Trace] = field(default_factory=list)
    layout: dict[str, Any] = field(default_factory=dict)
    legend: tuple[Mark, ...] = ()
    table: Table | None = None
    elsewhere: tuple[str, str] | None = None
    least_px: int = 0

    @property
    def figure(self) -> dict[str, Any]:
        return {"data": self.data, "layout": self.layout}


def layout(height: int, **rest: Any) -> dict[str, Any]:
    """Returns the layout that all figures share; `rest` is laid over it, that of the axes added to theirs."""
    axis = {
        "gridcolor": "var(--grid)",
        "linecolor": "var(--rule)",
        "zeroline": False,
        "automargin": True,
        "tickfont": {"color": "var(--muted)", "size": 12},
    }
    return {
        "height": height,
        "autosize": True,
        "margin": {"l": 8, "r": 12, "t": 12, "b": 8},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": "var(--ink)", "size": 13},
        "showlegend": False,
        "hovermode": "closest",
        "hoverlabel": {
            "bgcolor": "var(--surface)",
            "bordercolor": "var(--rule)",
            "font": {"color": "var(--ink)", "size": 13},
            "align": "left",
        },
        **{name: _with(axis, value) if "axis" in name else value for name, value in rest.items()},
    }


def _with(axis: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    title = {"title": _AXIS_TITLE | {"text": more["title"]}} if "title" in more else {}
    return axis | more | title


def plain(text: object) -> str:
    """`text` so that plotly shows it as it is: it would read tags in it as its own markup."""
    return html.escape(printable(text), quote=False)


def lines(*texts: str) -> str:
    """`texts` one below the other, long ones broken."""
    broken = (line for text in texts if text for line in textwrap.wrap(printable(text), _WIDEST) or [""])
    return "<br>".join(plain(line) for line in broken)


def per_s(row: TrialRow) -> float:
    """A trial's throughput; 0 where it has none."""
    return row.throughput.value if row.throughput else 0.0


def quality(row: TrialRow) -> float | None:
    """Returns the quality of a completed trial: the figure of any other one is of fewer samples."""
    return units.number(row.quality) if row.status == "completed" else None


def points(
    rows: Sequence[TrialRow],
    mark: Mark,
    x: Callable[[TrialRow], Any],
    y: Callable[[TrialRow], Any],
    report: Report,
) -> Trace:
    """Trials as markers, each showing its configuration."""
    return {
        "type": "scatter",
        "mode": "markers",
        "name": mark.label,
        "x": [x(row) for row in rows],
        "y": [y(row) for row in rows],
        "text": [told(row, report) for row in rows],
        "hoverinfo": "text",
        "marker": _marker(mark, is_crowded=len(report.trials) > _CROWD),
        "cliponaxis": False,
    }


def _marker(mark: Mark, *, is_crowded: bool) -> dict[str, Any]:
    is_open = "open" in mark.symbol
    edge, colour = (1.8, mark.colour) if is_open else (1, "var(--surface)")
    return {
        "symbol": mark.symbol,
        "size": mark.size - 2 if is_crowded and mark.size < _CHOSEN_SIZE else mark.size,
        "color": mark.colour,
        "line": {"width": edge, "color": colour},
    }


def line(mark: Mark, x: Sequence[Any], y: Sequence[Any], width: float = 2, **rest: Any) -> Trace:
    """A line without markers, dashed as its mark is."""
    dash = mark.symbol if mark.symbol in {"dash", "dot", "dashdot", "longdash"} else "solid"
    return {
        "type": "scatter",
        "mode": "lines",
        "name": mark.label,
        "x": list(x),
        "y": list(y),
        "hoverinfo": "skip",
        "line": {"color": mark.colour, "width": width, "dash": dash},
        **rest,
    }


def note(text: str, x: Any, y: Any, **rest: Any) -> dict[str, Any]:
    """A word or two inside a plot; `text` is plotly's markup."""
    return {
        "text": text,
        "x": x,
        "y": y,
        "xref": "paper",
        "showarrow": False,
        "font": {"color": "var(--muted)", "size": 12},
        "xanchor": "left",
        "yanchor": "bottom",
        "align": "left",
        **rest,
    }


def across(y: float, colour: str, dash: str = "dot", width: float = 1) -> dict[str, Any]:
    """A line from left to right, below all else."""
    edge = {"color": colour, "width": width, "dash": dash}
    place = {"xref": "paper", "x0": 0, "x1": 1, "yref": "y", "y0": y, "y1": y}
    return {"type": "line", "layer": "below", **place, "line": edge}


def bars(
    mark: Mark,
    rows: Sequence[int],
    lengths: Sequence[float],
    texts: Sequence[str],
    begins: Sequence[float] = (),
) -> Trace:
    """Bars from left to right in numbered rows, each showing its text; from 0 unless they begin elsewhere."""
    return {
        "type": "bar",
        "orientation": "h",
        "name": mark.label,
        "y": list(rows),
        "x": list(lengths),
        "width": _BAR,
        "hovertext": [plain(text) for text in texts],
        "hoverinfo": "text",
        "marker": {"color": mark.colour, "line": {"color": "var(--surface)", "width": 1}},
        **({"base": list(begins)} if begins else {}),
    }


def above(text: str, row: int) -> dict[str, Any]:
    """The title of a row of bars, above them; `text` is plotly's markup."""
    return note(text, 0, row, yref="y", yshift=13) | _TITLE


def behind(text: str, x: float, row: int) -> dict[str, Any]:
    """A word behind the bar that ends at `x`."""
    return note(plain(text), x, row, xref="x", yref="y", xshift=5, yanchor="middle") | _TITLE


def instead(text: str, row: int) -> dict[str, Any]:
    """Returns the reason for a missing bar, in its place."""
    return note(lines(text), 0, row, yref="y", yshift=12, yanchor="top") | _TITLE


def joint(x: float, row: int) -> dict[str, Any]:
    """A line from the bar of a row to that of the next."""
    edge = {"color": "var(--rule)", "width": 1}
    return {"type": "line", "x0": x, "x1": x, "y0": row + _BAR / 2, "y1": row + 1 - _BAR / 2, "line": edge}


def rows_layout(rows: int, **rest: Any) -> dict[str, Any]:
    """Rows of bars with their titles above them, which leaves a narrow screen all its width."""
    axis = {"range": [rows - 0.5, -0.75], "showticklabels": False, "showgrid": False, "fixedrange": True}
    return layout(70 + _ROW_PX * rows, yaxis=axis, **rest)


def told(row: TrialRow, report: Report) -> str:
    """Returns the text of a trial's marker: what it is, its settings, its figures, and why it ended."""
    figures = [f"{words.rate(row.throughput)} {report.unit}/s"] if row.throughput else []
    score = f"{words.metric(report.quality)} {words.score(row.quality)}"
    figures += [] if row.quality is None else [score]
    part = "" if row.memory_share is None else f" ({words.share(row.memory_share)} of the memory)"
    taken = words.peak(row.peak_memory_bytes, is_rising=row.memory_is_rising) + part
    return f"<b>Trial {row.number}</b> " + lines(
        marks.of(row).label,
        row.knobs,
        ", ".join(figures),
        taken if row.peak_memory_bytes is not None else "",
        row.reason,
    )
