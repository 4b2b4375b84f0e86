"""A plot of the report as plotly's JSON, because importing its Python API takes seconds."""

import html
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from autotune.core import units
from autotune.core.errors import printable
from autotune.display import words
from autotune.display.rows import TrialRow
from autotune.reports import marks
from autotune.reports.marks import Mark
from autotune.reports.model import SessionReport

Trace = dict[str, Any]
TRIALS = ("trials", "All trials as a table")
_WIDEST = 46  # characters in a line of a hover text


@dataclass(frozen=True)
class Table:
    """A table of text."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[int, ...] = ()  # columns to align right


@dataclass(frozen=True)
class Plot:
    """A plot with its title, legend, and text alternative."""

    id: str
    title: str
    axes: str  # explains the axes in words
    label: str = ""  # what a sighted reader would take from it
    data: list[Trace] = field(default_factory=list)
    layout: dict[str, Any] = field(default_factory=dict)  # besides the template in `templates/report.js`
    legend: tuple[Mark, ...] = ()
    table: Table | None = None
    elsewhere: tuple[str, str] | None = None  # ID and name of another table with its figures

    @property
    def figure(self) -> dict[str, Any]:
        return {"data": self.data, "layout": self.layout}


def escape(text: object) -> str:
    """Escapes `text` for plotly, which would read tags in it as markup."""
    return html.escape(printable(text), quote=False)


def lines(*texts: str) -> str:
    """Joins `texts` one below the other, with long ones wrapped."""
    broken = (line for text in texts if text for line in textwrap.wrap(printable(text), _WIDEST) or [""])
    return "<br>".join(escape(line) for line in broken)


def per_s(row: TrialRow) -> float:
    """Returns a trial's throughput; 0 if it has none."""
    return row.throughput.value if row.throughput else 0.0


def quality(row: TrialRow) -> float | None:
    """Returns the quality of a completed trial; None for any other, which has trained fewer samples."""
    return units.number(row.quality) if row.status == "completed" else None


def points(
    groups: Iterable[tuple[Mark, Sequence[TrialRow]]],
    x: Callable[[TrialRow], Any],
    y: Callable[[TrialRow], Any],
    report: SessionReport,
) -> list[Trace]:
    """Returns groups of trials as markers with hover texts."""
    traces = []
    for mark, rows in groups:
        edge, colour = (1.8, mark.colour) if "open" in mark.symbol else (1, "var(--surface)")
        marker = {
            "symbol": mark.symbol,
            "size": mark.size,
            "color": mark.colour,
            "line": {"width": edge, "color": colour},
        }
        trace = {
            "type": "scatter",
            "mode": "markers",
            "name": mark.label,
            "x": [x(row) for row in rows],
            "y": [y(row) for row in rows],
            "text": [hover_text(row, report) for row in rows],
            "hoverinfo": "text",
            "marker": marker,
            "cliponaxis": False,
        }
        traces.append(trace)
    return traces


def line(mark: Mark, x: Sequence[Any], y: Sequence[Any], width: float = 2, **rest: Any) -> Trace:
    """Returns a line without markers, dashed like its mark."""
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


def horizontal(y: float, colour: str, dash: str = "dot", width: float = 1) -> dict[str, Any]:
    """Returns a horizontal line below the data."""
    edge = {"color": colour, "width": width, "dash": dash}
    place = {"xref": "paper", "x0": 0, "x1": 1, "yref": "y", "y0": y, "y1": y}
    return {"type": "line", "layer": "below", **place, "line": edge}


def hover_text(row: TrialRow, report: SessionReport) -> str:
    """Returns a trial's hover text: its kind, settings and figures, and why it ended."""
    figures = [f"{words.rate(row.throughput)} {report.unit}/s"] if row.throughput else []
    if row.quality is not None:
        figures.append(f"{words.metric(report.quality)} {words.score(row.quality)}")
    share = "" if row.memory_share is None else f" ({words.share(row.memory_share)} of the memory)"
    peak = words.peak(row.peak_memory_bytes, is_rising=row.memory_is_rising) + share
    return f"<b>Trial {row.number}</b> " + lines(
        marks.trial(row).label,
        row.knobs,
        ", ".join(figures),
        peak if row.peak_memory_bytes is not None else "",
        row.reason,
    )
