"""Plots of throughput and peak memory by micro-batch and precision. Pure functions."""

import math
from collections.abc import Sequence
from typing import Any

from autotune.core import units
from autotune.core.settings import MICRO_BATCH
from autotune.display import words
from autotune.display.rows import TrialRow
from autotune.reports import marks
from autotune.reports.marks import Mark
from autotune.reports.model import Predicted, SessionReport
from autotune.reports.plot import TRIALS, Plot, Table, Trace, across, layout, line, per_s, points

_LIMIT = Mark("memory limit", "var(--ink)", "line")
_ALLOWED = Mark("share that may be used", "var(--ink)", "dash")
_PREDICTED = Mark("predicted, other settings as recommended", "var(--muted)", "band")
_UNITS = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("bytes", 1))
_APART = 1.06


def by_batch(report: SessionReport) -> list[Plot]:
    """Returns throughput and peak memory by micro-batch and precision; none if micro-batch is no setting."""
    rows = [r for r in report.trials if r.kind not in {"race", "repeat"} and _size(r)]
    speed = [r for r in rows if r.throughput is not None]
    memory = [r for r in rows if r.peak_memory_bytes is not None or r.failure == "oom"]
    return [*([_speed(report, speed)] if speed else []), *([_memory(report, memory)] if memory else [])]


def _speed(report: SessionReport, rows: Sequence[TrialRow]) -> Plot:
    groups, shifts = _by_precision(rows), _shifts(rows)
    best = {
        name: {n: max(per_s(r) for r in group if _size(r) == n) for n in _sizes(group)}
        for name, group in groups
    }

    def place(row: TrialRow) -> float:
        return _size(row) * shifts[marks.precision_of(row)]

    return Plot(
        id="speed-by-batch",
        title="Throughput by micro-batch",
        axes=f"↑ {report.unit} per second. {_joined(rows)}",
        label="; ".join(_fastest(name, group, report.unit) for name, group in best.items()),
        data=[
            *(
                line(
                    marks.precision(name),
                    [n * shifts[name] for n in group],
                    list(group.values()),
                    1.2,
                    opacity=0.5,
                )
                for name, group in best.items()
            ),
            *(points(group, marks.precision(name), place, per_s, report) for name, group in groups),
            *(points(group, mark, place, per_s, report) for mark, group in _chosen(rows)),
        ],
        layout=layout(360, xaxis=_axis(rows), yaxis={"rangemode": "tozero"}),
        legend=(*(marks.precision(name) for name, _ in groups), *(mark for mark, _ in _chosen(rows))),
        elsewhere=TRIALS,
    )


def _joined(rows: Sequence[TrialRow]) -> str:
    """Returns the sentence that explains the lines."""
    by = "precision" if any(marks.precisions(rows)) else "size"
    return f"Lines join the fastest of each {by}."


def _fastest(name: str, per_s_by_size: dict[int, float], unit: str) -> str:
    size = max(per_s_by_size, key=lambda n: per_s_by_size[n])
    return f"{marks.precision(name).label}: fastest at {size}, {words.rate(per_s_by_size[size])} {unit}/s"


def _memory(report: SessionReport, rows: Sequence[TrialRow]) -> Plot:
    measured = [r for r in rows if r.peak_memory_bytes is not None]
    full = [r for r in rows if r.peak_memory_bytes is None]
    limit, highest = report.memory_limit_bytes, max((r.peak_memory_bytes or 0 for r in measured), default=0)
    unit, size = next(each for each in _UNITS if max(highest, limit or 0) >= each[1] or each[1] == 1)
    top = max(highest, limit or 0) / size or 1.0

    def peak(row: TrialRow) -> float:
        return (row.peak_memory_bytes or 0) / size

    lines = [] if limit is None else [(limit, _LIMIT), (limit * report.memory_fraction, _ALLOWED)]
    return Plot(
        id="memory-by-batch",
        title="Peak memory by micro-batch",
        axes=f"↑ {unit}. Trials that ran out of memory are at the top.{_caution(measured)}",
        label=f"The highest peak measured is {words.memory(highest)}"
        + ("" if limit is None else f", the limit {words.memory(limit)}")
        + f"; {words.plural(sum(r.failure == 'oom' for r in rows), 'trial')} ran out of memory",
        data=[
            *(trace for each in report.predicted for trace in _prediction(each, size)),
            *(points(group, marks.precision(n), _size, peak, report) for n, group in _by_precision(measured)),
            *(points(group, mark, _size, peak, report) for mark, group in _chosen(measured)),
            *([points(full, marks.OOM, _size, lambda _: 1.07 * top, report)] if full else []),
        ],
        layout=layout(
            360,
            xaxis=_axis(rows),
            yaxis={"range": [0, 1.14 * top]},
            shapes=[
                across(at / size, mark.colour, "dash" if mark is _ALLOWED else "solid", 1.2)
                for at, mark in lines
            ],
        ),
        legend=(
            *(marks.precision(name) for name, _ in _by_precision(measured)),
            *(mark for mark, _ in _chosen(measured)),
            *([marks.OOM] if full else []),
            *([_PREDICTED] if report.predicted else []),
            *(mark for _, mark in lines),
        ),
        table=_predicted(report),
        elsewhere=TRIALS,
    )


def _caution(rows: Sequence[TrialRow]) -> str:
    rising = sum(r.memory_is_rising for r in rows)
    trials = words.plural(rising, "trial")
    return f" The peak of {trials} still rose at the end: it takes at least that much." if rising else ""


def _predicted(report: SessionReport) -> Table | None:
    """Returns the predicted peaks of every precision and size; the table of trials has the measured ones."""
    rows = tuple(
        (
            f"{each.precision} {size}".strip(),
            f"{words.memory(peak)} ({words.memory(low)} to {words.memory(up)})",
        )
        for each in report.predicted
        for size, peak, low, up in zip(
            each.micro_batch_size, each.peak_bytes, each.low_bytes, each.high_bytes, strict=True
        )
    )
    head = ("micro-batch", "predicted for the recommended settings")
    return Table(head, rows, numeric=(0, 1)) if rows else None


def _prediction(predicted: Predicted, unit_bytes: int) -> list[Trace]:
    """Returns the predicted peak of a precision as a dashed line inside its interval."""
    mark, sizes = marks.precision(predicted.precision), list(predicted.micro_batch_size)
    low, high = (
        [value / unit_bytes for value in side] for side in (predicted.low_bytes, predicted.high_bytes)
    )
    edge = line(mark, sizes + sizes[::-1], high + low[::-1], 0)
    middle = line(
        Mark(mark.label, mark.colour, "dash"), sizes, [v / unit_bytes for v in predicted.peak_bytes], 1.2
    )
    return [edge | {"fill": "toself", "fillcolor": mark.colour, "opacity": 0.14}, middle]


def _chosen(rows: Sequence[TrialRow]) -> list[tuple[Mark, list[TrialRow]]]:
    """Returns baseline and winner, which are drawn over the markers of their precision."""
    return marks.grouped(r for r in rows if r.kind in {"baseline", "winner"})


def _by_precision(rows: Sequence[TrialRow]) -> list[tuple[str, list[TrialRow]]]:
    groups = ((name, [r for r in rows if marks.precision_of(r) == name]) for name in marks.precisions(rows))
    return list(groups)


def _shifts(rows: Sequence[TrialRow]) -> dict[str, float]:
    """Returns factors that shift micro-batches on the axis, so that precisions stand side by side."""
    names = marks.precisions(rows)
    return {name: _APART ** (n - (len(names) - 1) / 2) for n, name in enumerate(names)}


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
