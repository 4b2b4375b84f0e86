"""Plots of throughput and peak memory by micro-batch and precision. Pure functions."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from autotune.core import units
from autotune.core.settings import MICRO_BATCH, PRECISION
from autotune.display import words
from autotune.display.rows import TrialRow
from autotune.reports import marks
from autotune.reports.marks import Mark
from autotune.reports.model import SessionReport
from autotune.reports.plot import TRIALS, Plot, Table, Trace, horizontal, line, per_s, points

_LIMIT = Mark("memory limit", "var(--ink)", "line")
_ALLOWED = Mark("share that may be used", "var(--ink)", "dash")
_PREDICTED = Mark("predicted, other settings as recommended", "var(--muted)", "band")
_UNITS = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("bytes", 1))
_APART = 1.06


def by_batch(report: SessionReport) -> list[Plot]:
    """Returns throughput and peak memory by micro-batch and precision; empty without micro-batches."""
    rows = [r for r in report.trials if r.kind not in {"race", "repeat"} and _size(r)]
    speed = [r for r in rows if r.throughput is not None]
    memory = [r for r in rows if r.peak_memory_bytes is not None or r.failure == "oom"]
    return [*([_speed(report, speed)] if speed else []), *([_memory(report, memory)] if memory else [])]


def _speed(report: SessionReport, rows: Sequence[TrialRow]) -> Plot:
    precisions, chosen = marks.by_precision(rows), _chosen(rows)
    shifts: dict[int, float] = {}  # by trial: precisions stand side by side
    labels, lines = [], []
    for place, (mark, group) in enumerate(precisions):
        shift: float = _APART ** (place - (len(precisions) - 1) / 2)
        shifts |= {row.number: shift for row in group}
        best = {size: max(per_s(r) for r in group if _size(r) == size) for size in _sizes(group)}
        fastest = max(best, key=lambda size: best[size])
        labels.append(f"{mark.label}: fastest at {fastest}, {words.rate(best[fastest])} {report.unit}/s")
        lines.append(line(mark, [size * shift for size in best], list(best.values()), 1.2, opacity=0.5))
    groups = [*precisions, *chosen]
    by = "precision" if any(PRECISION in row.config for row in rows) else "size"
    return Plot(
        id="speed-by-batch",
        title="Throughput by micro-batch",
        axes=f"↑ {report.unit} per second. Lines join the fastest of each {by}.",
        label="; ".join(labels),
        data=[*lines, *points(groups, lambda r: _size(r) * shifts[r.number], per_s, report)],
        layout={"height": 360, "xaxis": _axis(rows), "yaxis": {"rangemode": "tozero"}},
        legend=tuple(mark for mark, _ in groups),
        elsewhere=TRIALS,
    )


def _memory(report: SessionReport, rows: Sequence[TrialRow]) -> Plot:
    measured = [r for r in rows if r.peak_memory_bytes is not None]
    full = [r for r in rows if r.peak_memory_bytes is None]
    limit, highest = report.memory_limit_bytes, max((r.peak_memory_bytes or 0 for r in measured), default=0)
    unit, size = next(each for each in _UNITS if max(highest, limit or 0) >= each[1] or each[1] == 1)
    top = max(highest, limit or 0) / size or 1.0
    label = f"The highest peak measured is {words.memory(highest)}"
    limits, shapes = [], []
    if limit is not None:
        label += f", the limit {words.memory(limit)}"
        limits = [_LIMIT, _ALLOWED]
        allowed = report.memory_fraction * limit
        shapes = [
            horizontal(limit / size, _LIMIT.colour, "solid", 1.2),
            horizontal(allowed / size, _ALLOWED.colour, "dash", 1.2),
        ]
    caution = ""
    if rising := sum(r.memory_is_rising for r in measured):
        trials = words.plural(rising, "trial")
        caution = f" The peak of {trials} still rose at the end: it takes at least that much."
    predictions, table = _predictions(report, size)
    groups = [*marks.by_precision(measured), *_chosen(measured)]
    failed = [(marks.OOM, full)] if full else []
    return Plot(
        id="memory-by-batch",
        title="Peak memory by micro-batch",
        axes=f"↑ {unit}. Trials that ran out of memory are at the top.{caution}",
        label=f"{label}; {words.plural(sum(r.failure == 'oom' for r in rows), 'trial')} ran out of memory",
        data=[
            *predictions,
            *points(groups, _size, lambda r: (r.peak_memory_bytes or 0) / size, report),
            *points(failed, _size, lambda _: 1.07 * top, report),
        ],
        layout={"height": 360, "xaxis": _axis(rows), "yaxis": {"range": [0, 1.14 * top]}, "shapes": shapes},
        legend=(
            *(mark for mark, _ in [*groups, *failed]),
            *([_PREDICTED] if report.predicted else []),
            *limits,
        ),
        table=table,
        elsewhere=TRIALS,
    )


def _predictions(report: SessionReport, unit_bytes: int) -> tuple[list[Trace], Table | None]:
    """Returns the predicted peaks of each precision as a dashed line inside its interval, and as a table."""
    traces, rows = [], []
    for each in report.predicted:
        mark, sizes = marks.precision(each.precision), list(each.micro_batch_size)
        figures = each.peak_bytes, each.low_bytes, each.high_bytes
        for size, *of_size in zip(sizes, *figures, strict=True):
            peak, low, high = map(words.memory, of_size)
            rows.append((f"{each.precision} {size}".strip(), f"{peak} ({low} to {high})"))
        peaks, lows, highs = ([value / unit_bytes for value in values] for values in figures)
        band = line(mark, sizes + sizes[::-1], highs + lows[::-1], 0)
        traces.append(band | {"fill": "toself", "fillcolor": mark.colour, "opacity": 0.14})
        traces.append(line(replace(mark, symbol="dash"), sizes, peaks, 1.2))
    head = ("micro-batch", "predicted for the recommended settings")
    return traces, Table(head, tuple(rows), numeric=(0, 1)) if rows else None


def _chosen(rows: Sequence[TrialRow]) -> list[tuple[Mark, list[TrialRow]]]:
    """Returns baseline and winner, which are drawn over the markers of their precision."""
    return marks.grouped(r for r in rows if r.kind in {"baseline", "winner"})


def _axis(rows: Sequence[TrialRow]) -> dict[str, Any]:
    sizes = _sizes(rows)
    return {
        "type": "log",
        "tickvals": sizes,
        "ticktext": [str(size) for size in sizes],
        "range": [math.log10(sizes[0] / 1.4), math.log10(sizes[-1] * 1.4)],
        "title": "micro-batch",
    }


def _sizes(rows: Sequence[TrialRow]) -> list[int]:
    return sorted({_size(r) for r in rows})


def _size(row: TrialRow) -> int:
    """Returns the micro-batch of a trial; 0 if it has none."""
    return int(max(0.0, units.number(row.config.get(MICRO_BATCH)) or 0.0))
