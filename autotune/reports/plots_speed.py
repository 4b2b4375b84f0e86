"""Plots of throughput and peak memory by micro-batch and precision. Pure functions."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from autotune.core import units
from autotune.core.settings import MICRO_BATCH
from autotune.display import words
from autotune.display.rows import TrialRow
from autotune.reports import marks
from autotune.reports.marks import Mark
from autotune.reports.model import Predicted, SessionReport
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
    groups, chosen = _by_precision(rows), _chosen(rows)
    # Precisions stand side by side.
    shifts: dict[str, float] = {name: _APART ** (n - (len(groups) - 1) / 2) for n, name in enumerate(groups)}
    labels, lines = [], []
    for name, group in groups.items():
        mark = marks.precision(name)
        best = {n: max(per_s(r) for r in group if _size(r) == n) for n in _sizes(group)}
        size = max(best, key=lambda n: best[n])
        labels.append(f"{mark.label}: fastest at {size}, {words.rate(best[size])} {report.unit}/s")
        lines.append(line(mark, [n * shifts[name] for n in best], list(best.values()), 1.2, opacity=0.5))

    def place(row: TrialRow) -> float:
        return _size(row) * shifts[marks.precision_of(row)]

    by = "precision" if any(groups) else "size"
    return Plot(
        id="speed-by-batch",
        title="Throughput by micro-batch",
        axes=f"↑ {report.unit} per second. Lines join the fastest of each {by}.",
        label="; ".join(labels),
        data=[
            *lines,
            *(points(group, marks.precision(name), place, per_s, report) for name, group in groups.items()),
            *(points(group, mark, place, per_s, report) for mark, group in chosen),
        ],
        layout={"height": 360, "xaxis": _axis(rows), "yaxis": {"rangemode": "tozero"}},
        legend=(*map(marks.precision, groups), *(mark for mark, _ in chosen)),
        elsewhere=TRIALS,
    )


def _memory(report: SessionReport, rows: Sequence[TrialRow]) -> Plot:
    measured = [r for r in rows if r.peak_memory_bytes is not None]
    full = [r for r in rows if r.peak_memory_bytes is None]
    groups, chosen = _by_precision(measured), _chosen(measured)
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
    rising = words.plural(sum(r.memory_is_rising for r in measured), "trial")
    caution = f" The peak of {rising} still rose at the end: it takes at least that much."
    is_rising = any(r.memory_is_rising for r in measured)

    def peak(row: TrialRow) -> float:
        return (row.peak_memory_bytes or 0) / size

    return Plot(
        id="memory-by-batch",
        title="Peak memory by micro-batch",
        axes=f"↑ {unit}. Trials that ran out of memory are at the top.{caution if is_rising else ''}",
        label=f"{label}; {words.plural(sum(r.failure == 'oom' for r in rows), 'trial')} ran out of memory",
        data=[
            *(trace for each in report.predicted for trace in _prediction(each, size)),
            *(points(group, marks.precision(n), _size, peak, report) for n, group in groups.items()),
            *(points(group, mark, _size, peak, report) for mark, group in chosen),
            *([points(full, marks.OOM, _size, lambda _: 1.07 * top, report)] if full else []),
        ],
        layout={"height": 360, "xaxis": _axis(rows), "yaxis": {"range": [0, 1.14 * top]}, "shapes": shapes},
        legend=(
            *map(marks.precision, groups),
            *(mark for mark, _ in chosen),
            *([marks.OOM] if full else []),
            *([_PREDICTED] if report.predicted else []),
            *limits,
        ),
        table=_predicted(report),
        elsewhere=TRIALS,
    )


def _predicted(report: SessionReport) -> Table | None:
    """Returns the predicted peaks of every precision and size; the table of trials has the measured ones."""
    rows = tuple(
        (
            f"{each.precision} {size}".strip(),
            f"{words.memory(peak)} ({words.memory(low)} to {words.memory(high)})",
        )
        for each in report.predicted
        for size, peak, low, high in zip(
            each.micro_batch_size, each.peak_bytes, each.low_bytes, each.high_bytes, strict=True
        )
    )
    head = ("micro-batch", "predicted for the recommended settings")
    return Table(head, rows, numeric=(0, 1)) if rows else None


def _prediction(predicted: Predicted, unit_bytes: int) -> list[Trace]:
    """Returns the predicted peak of a precision as a dashed line inside its interval."""
    mark, sizes = marks.precision(predicted.precision), list(predicted.micro_batch_size)
    peaks, low, high = (
        [value / unit_bytes for value in each]
        for each in (predicted.peak_bytes, predicted.low_bytes, predicted.high_bytes)
    )
    band = line(mark, sizes + sizes[::-1], high + low[::-1], 0)
    return [
        band | {"fill": "toself", "fillcolor": mark.colour, "opacity": 0.14},
        line(replace(mark, symbol="dash"), sizes, peaks, 1.2),
    ]


def _chosen(rows: Sequence[TrialRow]) -> list[tuple[Mark, list[TrialRow]]]:
    """Returns baseline and winner, which are drawn over the markers of their precision."""
    return marks.grouped(r for r in rows if r.kind in {"baseline", "winner"})


def _by_precision(rows: Sequence[TrialRow]) -> dict[str, list[TrialRow]]:
    return {name: [r for r in rows if marks.precision_of(r) == name] for name in marks.precisions(rows)}


def _axis(rows: Sequence[TrialRow]) -> dict[str, Any]:
    """Returns a logarithmic axis that labels each size that occurs."""
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
