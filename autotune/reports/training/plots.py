"""The plots of a training: what it learnt, how fast, and what the machine showed. Pure functions of a report.

All over time have one axis: the time in which the training ran.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import cycle
from typing import Any

from autotune.judging.estimates import Figure
from autotune.judging.promise import Kept
from autotune.reports import marks, words
from autotune.reports.marks import Mark
from autotune.reports.plot import Plot, Trace, note, plain
from autotune.reports.training import drawing
from autotune.reports.training.model import Point, TrainingReport
from autotune.reports.training.series import thinned

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
_ROOM = 1.12  # above the fastest
_OF_GPU = re.compile(r"gpu_(?:(\d+)_)?(\w+)")
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
    first, last = (drawing.number(point.value) for point in (points[0], points[-1]))
    return Plot(
        id=f"{name}-samples",
        title=f"{title} over {report.unit}",
        axes=f"↑ {name}",
        label=f"{title}: {first} at first, {last} in the end",
        data=drawing.over_samples(Mark(title, *_OF_STEPS), points, report),
        layout=drawing.framed(report, drawing.samples_axis(report)),
        legend=drawing.legend([], report),
        table=drawing.table(name, {name: points}, report, drawing.number),
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
        data=drawing.over_samples(mark, points, report),
        layout=drawing.framed(report, drawing.samples_axis(report)),
        legend=drawing.legend([], report),
        table=drawing.table(title, {title: points}, report, words.score),
    )
    over_time = replace(
        over_samples,
        id=f"{name}-time",
        title=f"{title} over time",
        data=drawing.over_time(mark, points, report),
        layout=drawing.framed(report, drawing.time_axis(report)),
        table=None,
        elsewhere=(f"table-{name}-samples", f"In the table of {title} over {report.unit}"),
    )
    return [over_samples, over_time]


def speed(report: TrainingReport) -> list[Plot]:
    """How many samples a second were trained, and what the time of one went to."""
    return [*_per_s(report), *_phases(report)]


def _per_s(report: TrainingReport) -> list[Plot]:
    """Samples per second over time, next to what was promised of steps alone."""
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
            data=drawing.over_time(_SPEED, points, report),
            layout=drawing.framed(
                report, drawing.time_axis(report), yaxis={"range": [0, top]}, **_level(promised)
            ),
            legend=drawing.legend([_SPEED, *([_PROMISED] if promised else [])], report),
            table=drawing.table(title, {title: points}, report, words.rate),
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


def _phases(report: TrainingReport) -> list[Plot]:
    """Milliseconds of a sample by the part of its step, one on top of the other, over time."""
    found, each = report.curves.phases_s, report.unit.removesuffix("s")
    if not found:
        return []
    shown = {mark: _milliseconds(found[mark.label]) for mark in marks.phases(found)}
    ends = (f"{mark.label} {drawing.number(points[-1].value)} ms" for mark, points in shown.items())
    return [
        Plot(
            id="phases-time",
            title=f"What a {each}'s time goes to",
            axes=f"↑ ms per {each}, by part of a step. Evaluations are left out.",
            label=f"A {each}'s time, in the end: {'; '.join(ends)}",
            data=[*(_stacked(*one, report) for one in shown.items()), *drawing.events_over_time(report)],
            layout=drawing.framed(report, drawing.time_axis(report), yaxis={"rangemode": "tozero"}),
            legend=drawing.legend(list(shown), report),
            table=drawing.table(
                f"ms per {each}", {m.label: p for m, p in shown.items()}, report, drawing.number
            ),
        )
    ]


def _milliseconds(points: Iterable[Point]) -> list[Point]:
    return [replace(point, value=1000 * point.value) for point in points]


def _stacked(mark: Mark, points: Sequence[Point], report: TrainingReport) -> Trace:
    """A curve on top of the one before, filled down to it."""
    curve = drawing.drawn(mark, drawing.at(points, report), points, report, "ms")
    filled = {"stackgroup": "phases", "fillcolor": mark.colour, "hoveron": "points"}
    return curve | filled | {"mode": "lines", "line": {"color": mark.colour, "width": 0.5}}


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
        + "; ".join(f"{label} {drawing.number(points[-1].value)} {unit}" for label, points in found.items()),
        data=[
            *(
                drawing.drawn(mark, drawing.at(points, report), points, report, unit)
                for mark, points in shown.items()
            ),
            *drawing.events_over_time(report),
        ],
        layout=drawing.framed(report, drawing.time_axis(report), yaxis={"rangemode": "tozero"}),
        legend=drawing.legend(list(shown), report),
        table=drawing.table(unit, found, report, drawing.number),
    )


def _label(figure: str) -> str:
    if one := _OF_GPU.fullmatch(figure):
        which, what = one[1], _LABELS_OF_GPU.get(one[2], one[2])
        return ", ".join(part for part in (f"GPU {which}" if which else "GPU", what) if part)
    return _LABELS.get(figure, figure)


def _scaled(figure: str, points: Iterable[Point], scale: float, report: TrainingReport) -> list[Point]:
    """In the plot's unit. As measured, 100% is one busy CPU: here it is all CPUs that it may use."""
    if figure in {"cpu_percent", "others_cpu_percent"}:
        allowed = report.curves.machine.get("allowed_cpus", ())
        scale /= max((point.value for point in allowed), default=1.0) or 1.0
    return [Point(point.samples, point.seconds, scale * point.value) for point in points]
