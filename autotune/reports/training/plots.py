"""The plots of a training: loss and quality, speed, and the machine's telemetry. Pure functions."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import cycle
from typing import Any

from autotune.display import words
from autotune.judging.measurement.estimates import Figure
from autotune.reports import curves, marks
from autotune.reports.curves import Axes, CurvePoint
from autotune.reports.marks import Mark
from autotune.reports.plot import Plot, escape, horizontal, note
from autotune.reports.training.model import TrainingReport
from autotune.reports.training.series import thin

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
# Plots of the machine: ID, title, unit, suffix of the figures' names, and their scale to the unit.
_MACHINE = (
    ("memory", "Memory", " GiB", "_bytes", 2.0**-30),
    ("use", "Use of CPUs and GPUs", "%", "_percent", 1.0),
    ("clock", "Clocks", " MHz", "_mhz", 1.0),
    ("temperature", "Temperature", " °C", "_c", 1.0),
    ("power", "Power", " W", "_w", 1.0),
)
_LEFT_OUT = {"host_memory_percent"}  # memory has a plot of its own


def by_section(report: TrainingReport) -> dict[str, list[Plot]]:
    """Returns every plot, by its section."""
    axes = Axes(report.metric.unit, report.seconds, report.events)
    return {
        "learning": _learning(report, axes),
        "speed": [*_per_s(report, axes), *_phases(report, axes)],
        "machine": list(_machine(report.curves.machine, axes)),
    }


def _learning(report: TrainingReport, axes: Axes) -> list[Plot]:
    loss, quality, name = report.curves.loss, report.curves.quality, words.metric(report.metric.name)
    plots: list[Plot] = []
    if loss:
        plot = Plot("loss", _LOSS.label, "↑ loss")
        plots += curves.draw_over_both(plot, {_LOSS: [loss]}, words.score, axes)
    if quality:
        plot = Plot("quality", name, f"↑ {name}" + (", lower is better" if report.metric.minimize else ""))
        runs = {Mark(name, "var(--winner)", "line"): [thin(quality)]}
        plots += curves.draw_over_both(plot, runs, words.score, axes)
    for name, points in report.curves.beside.items():
        if points:
            title = name.replace("_", " ").capitalize()
            plot, runs = Plot(name, title, f"↑ {name}"), {replace(_LOSS, label=title): [points]}
            plots.append(curves.draw(plot, runs, words.three_digits, replace(axes, over="samples")))
    return plots


def _per_s(report: TrainingReport, axes: Axes) -> list[Plot]:
    """Returns samples per second over time without evaluations, next to the promised throughput."""
    points, unit = report.curves.speed, report.metric.unit
    if not points:
        return []
    kept = report.promised.kept if report.promised and not report.metric.counts_evaluations else ()
    promised = next((check.promised for check in kept if check.what == "speed"), None)
    top = _ROOM * max([*(point.value for point in points), promised.value if promised else 0.0])
    plot = Plot(
        "speed",
        f"{unit.capitalize()} per second",
        f"↑ {unit} per second, of steps alone. Evaluations are left out.",
        layout={"yaxis": {"range": [0, top]}, **(_level(promised) if promised else {})},
        legend=(_PROMISED,) if promised else (),
    )
    drawn = curves.draw(plot, {replace(_LOSS, label="measured"): [points]}, words.rate, axes)
    label = f"{drawn.label}; promised {words.rate(promised)}" if promised else drawn.label
    return [replace(drawn, label=label)]


def _level(promised: Figure) -> dict[str, Any]:
    """Draws the promised throughput as a horizontal line, and its interval as a band."""
    shapes = [horizontal(promised.value, "var(--winner)", "dash", 1.4)]
    if promised.low is not None and promised.high is not None:
        band = {"y0": promised.low, "y1": promised.high, "fillcolor": "var(--winner)", "opacity": 0.15}
        shapes.append(shapes[0] | {"type": "rect", "line": {"width": 0}} | band)
    text = escape(f"promised: {words.rate(promised.value)}")
    return {"shapes": shapes, "annotations": [note(text, 1, promised.value, yref="y", xanchor="right")]}


def _phases(report: TrainingReport, axes: Axes) -> list[Plot]:
    """Plots the time per sample over the training, stacked by the phases of a step."""
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
    return [curves.draw_stacked(plot, runs, replace(words.three_digits, unit=" ms"), axes)]


def _machine(telemetry: Mapping[str, Sequence[CurvePoint]], axes: Axes) -> Iterator[Plot]:
    """Yields the telemetry of each unit over time; 100% of the CPUs is all that the training may use."""
    cpus = max((point.value for point in telemetry.get("allowed_cpus", ())), default=1.0) or 1.0
    for plot_id, title, unit, suffix, scale in _MACHINE:
        scales, looks = dict.fromkeys(("cpu_percent", "others_cpu_percent"), scale / cpus), cycle(_LOOKS)
        runs = {
            Mark(_label(name), *next(looks)): [_scaled(points, scales.get(name, scale))]
            for name, points in telemetry.items()
            if name.endswith(suffix) and name not in _LEFT_OUT and points
        }
        if runs:
            text = f"↑ {unit.strip()}" + (", 100% is all that it may use" if unit == "%" else "")
            layout = {"yaxis": {"rangemode": "tozero"}}
            plot = Plot(plot_id, title, text, layout=layout, legend=tuple(runs))
            yield curves.draw(plot, runs, replace(words.three_digits, unit=unit), axes)


def _label(name: str) -> str:
    if one := _OF_GPU.fullmatch(name):
        gpu, figure = one[1], _LABELS_OF_GPU.get(one[2], one[2])
        return ", ".join(filter(None, [f"GPU {gpu}" if gpu else "GPU", figure]))
    return _LABELS.get(name, name)


def _scaled(points: Iterable[CurvePoint], scale: float) -> list[CurvePoint]:
    return [replace(point, value=scale * point.value) for point in points]
