"""What the plots of a training share: their axes, its events, how a curve is drawn, and a table. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from autotune.reports import words
from autotune.reports.marks import Mark
from autotune.reports.plot import Table, Trace, layout, line, lines, plain
from autotune.reports.training.model import Happened, Point, TrainingReport
from autotune.training.events import Kind

_EVENT = Mark("event, in the table below", "var(--failed)", "triangle-down-open", 9)
_UNMARKED = {Kind.BEGUN, Kind.ENDED}
_EVENTS_AXIS = {"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True}
_ROOM_RIGHT = 1.03  # behind the end
_MOST_MARKED = 60  # points: more of them would hide how the line is dashed
_MOST_ROWS = 60  # of a table next to a plot
_THREE_DIGITS = 100.0  # from which on a number has no decimals


def number(value: float) -> str:
    """To three digits, without decimals from 100 on."""
    return f"{value:,.3g}" if abs(value) < _THREE_DIGITS else f"{value:,.0f}"


def _time(report: TrainingReport) -> tuple[float, str]:
    """How many seconds a unit of the time axis has, and its title."""
    for seconds, unit in ((3600.0, "hours"), (60.0, "minutes")):
        if report.seconds >= 2 * seconds:
            return seconds, f"{unit} in which it ran"
    return 1.0, "seconds in which it ran"


def at(points: Iterable[Point | Happened], report: TrainingReport) -> list[float]:
    """Where they are on the axis of time."""
    scale_s, _ = _time(report)
    return [point.seconds / scale_s for point in points]


def over_samples(mark: Mark, points: Sequence[Point], report: TrainingReport) -> list[Trace]:
    """A curve, and the events."""
    events = [float(event.samples) for event in _shown(report.events)]
    return [drawn(mark, [float(point.samples) for point in points], points, report), *_marked(events, report)]


def over_time(mark: Mark, points: Sequence[Point], report: TrainingReport) -> list[Trace]:
    """The same over time."""
    return [drawn(mark, at(points, report), points, report), *events_over_time(report)]


def drawn(
    mark: Mark, x: Sequence[float], points: Sequence[Point], report: TrainingReport, unit: str = ""
) -> Trace:
    """A curve whose points show their value, in its `unit`, and where they are."""
    texts = (
        f"{mark.label}: {number(p.value)} {unit}, {words.count(p.samples)} {report.unit}, "
        f"{words.duration(p.seconds)}"
        for p in points
    )
    values = [point.value for point in points]
    mode = "lines+markers" if len(points) <= _MOST_MARKED else "lines"
    look = {"mode": mode, "marker": {"color": mark.colour, "size": 3}, "hoverinfo": "text"}
    return line(mark, x, values, 1.6, **look, text=[plain(text) for text in texts])


def events_over_time(report: TrainingReport) -> list[Trace]:
    """The events that a reader may look for."""
    return _marked(at(_shown(report.events), report), report)


def _shown(events: Iterable[Happened]) -> list[Happened]:
    return [event for event in events if event.kind not in _UNMARKED]


def _marked(x: Sequence[float], report: TrainingReport) -> list[Trace]:
    """The events that a reader may look for, as lines from top to bottom, each showing its text."""
    found = _shown(report.events)
    if not found:
        return []
    across = [place for each in x for place in (each, each, None)]
    rule = line(_EVENT, across, [0, 1, None] * len(found), 1)
    told = [lines(f"{event.kind}: {event.text}") for event in found]
    return [
        rule | {"yaxis": "y2", "line": {"color": _EVENT.colour, "width": 1, "dash": "dot"}},
        {
            "type": "scatter",
            "mode": "markers",
            "name": _EVENT.label,
            "x": list(x),
            "y": [1] * len(found),
            "yaxis": "y2",
            "text": told,
            "hoverinfo": "text",
            "marker": {"symbol": _EVENT.symbol, "size": _EVENT.size, "color": _EVENT.colour},
            "cliponaxis": False,
        },
    ]


def samples_axis(report: TrainingReport) -> dict[str, Any]:
    return {"title": report.unit, "rangemode": "tozero"}


def time_axis(report: TrainingReport) -> dict[str, Any]:
    scale_s, title = _time(report)
    return {"title": title, "range": [0, _ROOM_RIGHT * report.seconds / scale_s]}


def framed(report: TrainingReport, xaxis: dict[str, Any], **rest: Any) -> dict[str, Any]:
    """The layout of a plot, with an axis of their own for the events."""
    given = {"yaxis": {}, **rest}
    events = {"yaxis2": _EVENTS_AXIS} if _shown(report.events) else {}
    return layout(320, xaxis=xaxis, **given, **events)


def legend(shown: Sequence[Mark], report: TrainingReport) -> tuple[Mark, ...]:
    """What is `shown`, and the events where there are some."""
    return (*shown, *([_EVENT] if _shown(report.events) else []))


def table(what: str, found: Mapping[str, Sequence[Point]], report: TrainingReport, told: Any) -> Table:
    """Every so many of the points, the last one always."""
    several = len(found) > 1
    rows = tuple(
        (*([label] if several else []), words.count(p.samples), words.duration(p.seconds), told(p.value))
        for label, points in found.items()
        for p in _some(points, _MOST_ROWS // len(found) or 1)
    )
    head = (*(["figure"] if several else []), report.unit, "time", what)
    return Table(head, rows, numeric=tuple(range(len(head) - 3, len(head))))


def _some(points: Sequence[Point], most: int) -> list[Point]:
    apart = -(-len(points) // most) or 1
    return [point for n, point in enumerate(points) if (len(points) - 1 - n) % apart == 0]
