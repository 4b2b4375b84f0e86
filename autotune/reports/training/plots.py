"""The plots of a training: loss and quality, speed, and the machine's telemetry. Pure functions."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import cycle
from typing import Any

from autotune.display import words
from autotune.judging.measurement.estimates import Figure
from autotune.reports import curves, marks
from autotune.reports.curves import Axes, CurvePoint
from autotune.reports.marks import Mark
from autotune.reports.plot import Plot, across, note, plain
from autotune.reports.training.model import TrainingReport
from autotune.reports.training.series import thinned

_LOSS = Mark("Training loss", "var(--completed)", "line")
_PROMISED = Mark("promised", "var(--winner)", "band")
_LOOKS = (
    ("var(--completed)", "line"),
    ("var(--fp32)", "dash"),
    ("var(--bf16)", "dot"),
    ("var(--fp8)", "dashdot"),
    ("var(--fp16)", "longdash"),
)
_ROOM = 1.12  # top of the axis, relative to the fastest
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
# Plots of the machine: ID, title, unit, suffix of the figures' names, and their factor to the unit.
_KINDS = (
    ("memory", "Memory", " GiB", "_bytes", 2.0**-30),
    ("use", "Use of CPUs and GPUs", "%", "_percent", 1.0),
    ("clock", "Clocks", " MHz", "_mhz", 1.0),
    ("temperature", "Temperature", " °C", "_c", 1.0),
    ("power", "Power", " W", "_w", 1.0),
)
_LEFT_OUT = {"host_memory_percent"}  # memory has a plot of its own


def by_section(report: TrainingReport) -> dict[str, list[Plot]]:
    """Returns every plot, by its section."""
    return {"learning": learning(report), "speed": speed(report), "machine": machine(report)}


def _axes(report: TrainingReport) -> Axes:
    return Axes(report.metric.unit, report.seconds, report.events)


def learning(report: TrainingReport) -> list[Plot]:
    """Returns loss and quality, each over samples and over time, and other figures over samples."""
    known, axes, name = report.curves, _axes(report), words.metric(report.metric.name)
    quality = name + (", lower is better" if report.metric.minimize else "")
    both = (
        (Plot("loss", _LOSS.label, "↑ loss"), _LOSS, known.loss),
        (Plot("quality", name, f"↑ {quality}"), Mark(name, "var(--winner)", "line"), thinned(known.quality)),
    )
    plots = [
        plot
        for one, mark, points in both
        if points
        for plot in curves.over_both(one, {mark: [points]}, words.score, axes)
    ]
    return plots + [_over_samples(name, points, axes) for name, points in known.beside.items() if points]


def _over_samples(name: str, points: Sequence[CurvePoint], axes: Axes) -> Plot:
    """Returns a plot of one figure over samples."""
    title = name.replace("_", " ").capitalize()
    runs = {Mark(title, "var(--completed)", "line"): [points]}
    return curves.drawn(
        Plot(name, title, f"↑ {name}"), runs, words.three_digits, replace(axes, over="samples")
    )


def speed(report: TrainingReport) -> list[Plot]:
    """Returns the plots of throughput, and of the time of a sample by phase."""
    return [*_per_s(report), *_phases(report)]


def _per_s(report: TrainingReport) -> list[Plot]:
    """Returns samples per second over time, next to the promised throughput, without evaluations."""
    points = report.curves.speed
    if not points:
        return []
    promised = None if report.metric.counts_evaluations else _promised_speed(report)
    top = _ROOM * max([*(point.value for point in points), promised.value if promised else 0.0])
    plot = Plot(
        "speed",
        f"{report.metric.unit.capitalize()} per second",
        f"↑ {report.metric.unit} per second, of steps alone. Evaluations are left out.",
        layout={"yaxis": {"range": [0, top]}, **_level(promised)},
        legend=(_PROMISED,) if promised else (),
    )
    runs = {Mark("measured", "var(--completed)", "line"): [points]}
    plotted = curves.drawn(plot, runs, words.rate, _axes(report))
    label = f"{plotted.label}; promised {words.rate(promised)}" if promised else plotted.label
    return [replace(plotted, label=label)]


def _promised_speed(report: TrainingReport) -> Figure | None:
    kept = report.promised.kept if report.promised else ()
    return next((one.promised for one in kept if one.what == "speed"), None)


def _level(promised: Figure | None) -> dict[str, Any]:
    """Draws what was promised as a line across, and its interval as a band."""
    if promised is None:
        return {}
    shapes = [across(promised.value, "var(--winner)", "dash", 1.4)]
    if promised.low is not None and promised.high is not None:
        band = {"y0": promised.low, "y1": promised.high, "fillcolor": "var(--winner)", "opacity": 0.15}
        shapes.append(shapes[0] | {"type": "rect", "line": {"width": 0}} | band)
    text = plain(f"promised: {words.rate(promised.value)}")
    return {"shapes": shapes, "annotations": [note(text, 1, promised.value, yref="y", xanchor="right")]}


def _phases(report: TrainingReport) -> list[Plot]:
    """Returns the time of a sample by phase of its step, stacked, over time."""
    phases_s, each = report.curves.phases_s, report.metric.unit.removesuffix("s")
    if not phases_s:
        return []
    runs = {mark: [_scaled(phases_s[mark.label], 1000.0)] for mark in marks.phases(phases_s)}
    plot = Plot(
        "phases",
        f"Milliseconds of a {each}",
        f"↑ ms per {each}, by part of a step. Evaluations are left out.",
        layout={"yaxis": {"rangemode": "tozero"}},
    )
    return [curves.stacked(plot, runs, replace(words.three_digits, unit=" ms"), _axes(report))]


def machine(report: TrainingReport) -> list[Plot]:
    """Returns the plots of the machine over time, one for each unit."""
    return [plot for kind in _KINDS if (plot := _machine(*kind, report=report))]


def _machine(
    name: str, title: str, unit: str, ending: str, scale: float, *, report: TrainingReport
) -> Plot | None:
    looks, seen = cycle(_LOOKS), report.curves.machine
    runs = {
        Mark(_label(figure), *next(looks)): [_scaled(points, scale / _whole(figure, report))]
        for figure, points in seen.items()
        if figure.endswith(ending) and figure not in _LEFT_OUT and points
    }
    if not runs:
        return None
    axes = f"↑ {unit.strip()}" + (", 100% is all that it may use" if name == "use" else "")
    layout, form = {"yaxis": {"rangemode": "tozero"}}, replace(words.three_digits, unit=unit)
    plot = Plot(name, title, axes, layout=layout, legend=tuple(runs))
    return curves.drawn(plot, runs, form, _axes(report))


def _label(figure: str) -> str:
    if one := _OF_GPU.fullmatch(figure):
        which, what = one[1], _LABELS_OF_GPU.get(one[2], one[2])
        return ", ".join(part for part in (f"GPU {which}" if which else "GPU", what) if part)
    return _LABELS.get(figure, figure)


def _whole(figure: str, report: TrainingReport) -> float:
    """Returns the number of allowed CPUs for figures of CPU use, in which 100% is one CPU; 1 for others."""
    if figure not in {"cpu_percent", "others_cpu_percent"}:
        return 1.0
    allowed = report.curves.machine.get("allowed_cpus", ())
    return max((point.value for point in allowed), default=1.0) or 1.0


def _scaled(points: Iterable[CurvePoint], scale: float) -> list[CurvePoint]:
    return [replace(point, value=scale * point.value) for point in points]
