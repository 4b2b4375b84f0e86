"""The plots of a training: what it learnt, how fast, and what the machine showed. Pure functions of a report.

All over time have one axis: the time in which the training ran.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import cycle
from typing import Any

from autotune.judging.estimates import Figure
from autotune.judging.promise import Kept
from autotune.reports import words
from autotune.reports.marks import Mark
from autotune.reports.plot import Plot, Table, Trace, layout, line, lines, note, plain
from autotune.reports.training.model import Happened, Point, TrainingReport
from autotune.reports.training.series import thinned
from autotune.training.events import Kind

_EVENT = Mark("event, in the table below", "var(--failed)", "triangle-down-open", 9)
_UNMARKED = {Kind.BEGUN, Kind.ENDED}
_EVENTS_AXIS = {"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True}
_LOSS = Mark("Training loss", "var(--completed)", "line")
_OF_QUALITY, _OF_STEPS = ("var(--winner)", "line"), ("var(--completed)", "line")
_SPEED = Mark("measured", "var(--completed)", "line")
_PROMISED = Mark("promised", "var(--winner)", "band")
_LOOKS = (
    ("var(--completed)", "line"),
    ("var(--fp32)", "dash"),
    ("var(--bf16)", "dot"),
    ("var(--fp8)", "dashdot"),
    ("var(--fp16)", "longdash"),
)
_ROOM, _ROOM_RIGHT = 1.12, 1.03  # above the fastest, and behind the end
_MOST_MARKED = 60  # points: more of them would hide how the line is dashed
_MOST_ROWS = 60  # of a table beside a plot
_ALL, _OF_GPU = 100.0, re.compile(r"gpu_(?:(\d+)_)?(\w+)")
_LABELS = {
    "memory_peak_bytes": "peak so far, as it is compared",
    "memory_peak_reserved_bytes": "peak of the GPU's allocator",
    "memory_children_bytes": "peak of its subprocesses",
    "memory_script_bytes": "peak of its script",
    "memory_context_bytes": "the GPU's context",
    "host_rss_bytes": "resident, all its processes",
    "children_uss_bytes": "its subprocesses alone",
    "host_memory_used_bytes": "used on the host",
    "host_memory_free_bytes": "free on the host",
    "cpu_percent": "CPUs, its own processes",
    "others_cpu_percent": "CPUs, others",
    "others_gpu_percent": "GPU, others",
}
_LABELS_OF_GPU = {
    "memory_used_bytes": "used",
    "memory_free_bytes": "free",
    "utilisation_percent": "everybody",
    "sm_clock_mhz": "multiprocessors",
    "memory_clock_mhz": "memory",
    "temperature_c": "",
    "power_w": "",
}
# What is plotted of the machine: a title, a unit, how its figures' names end, and their factor to the unit.
_KINDS = (
    ("memory", "Memory", "GiB", "_bytes", 2.0**-30),
    ("use", "Use of CPUs and GPUs", "%", "_percent", 1.0),
    ("clock", "Clocks", "MHz", "_mhz", 1.0),
    ("temperature", "Temperature", "°C", "_c", 1.0),
    ("power", "Power", "W", "_w", 1.0),
)
_LEFT_OUT = {"host_memory_percent"}  # memory has a plot of its own


def learning(report: TrainingReport) -> list[Plot]:
    """The loss and the quality, each over samples and over time, and what else is known of steps."""
    found = report.curves
    name = words.metric(report.quality) + (", lower is better" if report.minimize else "")
    return [
        *_both(_LOSS, "loss", found.loss, report),
        *_both(Mark(words.metric(report.quality), *_OF_QUALITY), name, thinned(found.quality), report),
        *(_beside(name, points, report) for name, points in found.beside.items() if points),
    ]


def _beside(name: str, points: Sequence[Point], report: TrainingReport) -> Plot:
    """A figure of the training over its samples."""
    title = name.replace("_", " ").capitalize()
    return Plot(
        id=f"{name}-samples",
        title=f"{title} over {report.unit}",
        axes=f"↑ {name}",
        label=f"{title}: {_number(points[0].value)} at first, {_number(points[-1].value)} in the end",
        data=_over_samples(Mark(title, *_OF_STEPS), points, report),
        layout=_layout(report, _samples_axis(report)),
        legend=_legend([], report),
        table=_table(name, {name: points}, report, _number),
    )


def _both(mark: Mark, axis: str, points: Sequence[Point], report: TrainingReport) -> list[Plot]:
    """A curve over samples and over time; one table has both."""
    if not points:
        return []
    ends = f"{words.score(points[0].value)} at first, {words.score(points[-1].value)} in the end"
    title, name = mark.label, "loss" if mark is _LOSS else "quality"
    over_samples = Plot(
        id=f"{name}-samples",
        title=f"{title} over {report.unit}",
        axes=f"↑ {axis}",
        label=f"{title}: {ends}",
        data=_over_samples(mark, points, report),
        layout=_layout(report, _samples_axis(report)),
        legend=_legend([], report),
        table=_table(title, {title: points}, report, words.score),
    )
    over_time = replace(
        over_samples,
        id=f"{name}-time",
        title=f"{title} over time",
        data=_over_time(mark, points, report),
        layout=_layout(report, _time_axis(report)),
        table=None,
        elsewhere=(f"table-{name}-samples", f"In the table of {title} over {report.unit}"),
    )
    return [over_samples, over_time]


def speed(report: TrainingReport) -> list[Plot]:
    """Samples per second over time, beside what was promised of steps alone."""
    points = report.curves.speed
    if not points:
        return []
    promised = None if report.counts_evaluations else _promised_speed(report)
    title, axis = f"{report.unit.capitalize()} per second", f"{report.unit} per second, of steps alone"
    values = [point.value for point in points]
    top = _ROOM * max([*values, promised.value if promised else 0.0])
    told = "" if promised is None else f"; promised {words.throughput(promised)}"
    return [
        Plot(
            id="speed-time",
            title=f"{title} over time",
            axes=f"↑ {axis}. Evaluations are left out.",
            label=f"{title} from {words.rate(min(values))} to {words.rate(max(values))}{told}",
            data=_over_time(_SPEED, points, report),
            layout=_layout(report, _time_axis(report), yaxis={"range": [0, top]}, **_level(promised)),
            legend=_legend([_SPEED, *([_PROMISED] if promised else [])], report),
            table=_table(title, {title: points}, report, words.rate),
        )
    ]


def _promised_speed(report: TrainingReport) -> Figure | None:
    kept: Sequence[Kept] = report.promised.kept if report.promised else ()
    return next((one.promised for one in kept if one.what == "speed"), None)


def _level(promised: Figure | None) -> dict[str, Any]:
    """What was promised, as a line across, and its interval as a band."""
    if promised is None:
        return {}
    across = {"xref": "paper", "x0": 0, "x1": 1, "yref": "y", "layer": "below"}
    edge = {"color": "var(--winner)", "width": 1.4, "dash": "dash"}
    middle = across | {"type": "line", "y0": promised.value, "y1": promised.value, "line": edge}
    shapes = [middle]
    if promised.low is not None and promised.high is not None:
        band = {"y0": promised.low, "y1": promised.high, "fillcolor": "var(--winner)", "opacity": 0.15}
        shapes = [across | {"type": "rect", "line": {"width": 0}} | band, middle]
    text = note(
        plain(f"promised: {words.rate(promised.value)}"), 1, promised.value, yref="y", xanchor="right"
    )
    return {"shapes": shapes, "annotations": [text]}


def machine(report: TrainingReport) -> list[Plot]:
    """What was seen of the machine over time, a plot for each unit of measurement."""
    return [plot for kind in _KINDS if (plot := _machine(*kind, report=report))]


def _machine(
    name: str, title: str, unit: str, ending: str, scale: float, *, report: TrainingReport
) -> Plot | None:
    found = {
        _label(figure): _scaled(figure, points, scale, report)
        for figure, points in report.curves.machine.items()
        if figure.endswith(ending) and figure not in _LEFT_OUT and points
    }
    if not found:
        return None
    looks = cycle(_LOOKS)
    shown = {Mark(label, *next(looks)): points for label, points in found.items()}
    return Plot(
        id=f"{name}-time",
        title=title,
        axes=f"↑ {unit}" + (", 100% is all that it may use" if name == "use" else ""),
        label=f"{title}, in the end: "
        + "; ".join(f"{label} {_number(points[-1].value)} {unit}" for label, points in found.items()),
        data=[
            *(_drawn(mark, _at(points, report), points, report, unit) for mark, points in shown.items()),
            *_marked(_at(_shown(report.events), report), report),
        ],
        layout=_layout(report, _time_axis(report), yaxis={"rangemode": "tozero"}),
        legend=_legend(list(shown), report),
        table=_table(unit, found, report, _number),
    )


def _label(figure: str) -> str:
    if one := _OF_GPU.fullmatch(figure):
        which, what = one[1], _LABELS_OF_GPU.get(one[2], one[2])
        return ", ".join(part for part in (f"GPU {which}" if which else "GPU", what) if part)
    return _LABELS.get(figure, figure)


def _scaled(figure: str, points: Iterable[Point], scale: float, report: TrainingReport) -> list[Point]:
    """In the plot's unit. Of CPUs 100% are one that is busy: here they are all that it may use."""
    if figure in {"cpu_percent", "others_cpu_percent"}:
        allowed = report.curves.machine.get("allowed_cpus", ())
        scale /= max((point.value for point in allowed), default=1.0) or 1.0
    return [Point(point.samples, point.seconds, scale * point.value) for point in points]


def _number(value: float) -> str:
    return f"{value:,.3g}" if abs(value) < _ALL else f"{value:,.0f}"


def _time(report: TrainingReport) -> tuple[float, str]:
    """How many seconds a unit of the time axis has, and its title."""
    for seconds, unit in ((3600.0, "hours"), (60.0, "minutes")):
        if report.seconds >= 2 * seconds:
            return seconds, f"{unit} in which it ran"
    return 1.0, "seconds in which it ran"


def _at(points: Iterable[Point | Happened], report: TrainingReport) -> list[float]:
    scale_s, _ = _time(report)
    return [point.seconds / scale_s for point in points]


def _over_samples(mark: Mark, points: Sequence[Point], report: TrainingReport) -> list[Trace]:
    at = [float(event.samples) for event in _shown(report.events)]
    return [_drawn(mark, [float(point.samples) for point in points], points, report), *_marked(at, report)]


def _over_time(mark: Mark, points: Sequence[Point], report: TrainingReport) -> list[Trace]:
    at = _at(_shown(report.events), report)
    return [_drawn(mark, _at(points, report), points, report), *_marked(at, report)]


def _drawn(
    mark: Mark, x: Sequence[float], points: Sequence[Point], report: TrainingReport, unit: str = ""
) -> Trace:
    texts = (
        f"{mark.label}: {_number(p.value)} {unit}, {words.count(p.samples)} {report.unit}, "
        f"{words.duration(p.seconds)}"
        for p in points
    )
    values = [point.value for point in points]
    mode = "lines+markers" if len(points) <= _MOST_MARKED else "lines"
    look = {"mode": mode, "marker": {"color": mark.colour, "size": 3}, "hoverinfo": "text"}
    return line(mark, x, values, 1.6, **look, text=[plain(text) for text in texts])


def _shown(events: Iterable[Happened]) -> list[Happened]:
    return [event for event in events if event.kind not in _UNMARKED]


def _marked(x: Sequence[float], report: TrainingReport) -> list[Trace]:
    """The events that a reader may look for, as lines from top to bottom, each telling its text."""
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


def _samples_axis(report: TrainingReport) -> dict[str, Any]:
    return {"title": report.unit, "rangemode": "tozero"}


def _time_axis(report: TrainingReport) -> dict[str, Any]:
    scale_s, title = _time(report)
    return {"title": title, "range": [0, _ROOM_RIGHT * report.seconds / scale_s]}


def _layout(report: TrainingReport, xaxis: dict[str, Any], **rest: Any) -> dict[str, Any]:
    given = {"yaxis": {}, **rest}
    events = {"yaxis2": _EVENTS_AXIS} if _shown(report.events) else {}
    return layout(320, xaxis=xaxis, **given, **events)


def _legend(shown: Sequence[Mark], report: TrainingReport) -> tuple[Mark, ...]:
    return (*shown, *([_EVENT] if _shown(report.events) else []))


def _table(what: str, found: Mapping[str, Sequence[Point]], report: TrainingReport, told: Any) -> Table:
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
