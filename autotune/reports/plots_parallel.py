"""All configurations in parallel coordinates, drawn as ordinary lines, which print and need no WebGL."""

import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from autotune.core import units
from autotune.display import words
from autotune.display.rows import TrialRow
from autotune.reports import marks
from autotune.reports.marks import Mark
from autotune.reports.model import SessionReport
from autotune.reports.plot import TRIALS, Plot, Trace, escape, layout, line, note, per_s, quality, vertical

_FAST = Mark("fastest third", "var(--band-3)", "line")
_MIDDLE = Mark("middle third", "var(--band-2)", "line")
_SLOW = Mark("slowest third", "var(--band-1)", "line")
_ENDED = Mark("not measured to the end", "var(--band-1)", "dot")
_FAILED = Mark("failed", "var(--failed)", "dot")
_ORDER = (_FAILED, _ENDED, _SLOW, _MIDDLE, _FAST, marks.BASELINE, marks.WINNER)
_MOST_TICKS, _AXIS_PX, _WIDEST = 7, 92, 9  # pixels between axes, characters in a line of an axis' name
_LEAST_APART = 0.07  # of two labels, as a share of an axis
_DECADE = 8  # ratio of largest to smallest value from which an axis is logarithmic


@dataclass(frozen=True)
class _Axis:
    """The axis of one knob or figure."""

    name: str
    place: Callable[[TrialRow], float | None]  # from 0 to 1; None if the trial has no value
    ticks: Sequence[tuple[float, str]]


def parallel(report: SessionReport) -> Plot | None:
    """Returns the varied knobs, throughput and quality; None before two trials differ."""
    rows = [r for r in report.trials if r.kind in {"baseline", "winner", "trial"}]
    names = dict.fromkeys(name for r in rows for name in r.config)
    knobs = [name for name in names if len({repr(r.config.get(name)) for r in rows}) > 1]
    if not knobs:
        return None
    metric = words.metric(report.quality)
    values: dict[str, Callable[[TrialRow], Any]] = {
        **{knob: partial(_setting, knob) for knob in knobs},
        f"{report.unit}/s": lambda r: per_s(r) or None,
        metric: quality,
    }
    axes = [axis for name, value in values.items() if (axis := _axis(name, rows, value))]
    groups = _bands(rows)
    return Plot(
        id="parallel",
        title="Every configuration",
        axes="One line per trial, through its value of each setting to its results.",
        label=f"{words.plural(len(rows), 'configuration')} over {', '.join(knobs)}, throughput and {metric}",
        data=[_lines(mark, members, axes) for mark, members in groups.items()],
        layout=layout(
            380,
            margin={"l": 34, "r": 34, "t": 64, "b": 10},
            xaxis={"visible": False, "range": [-0.05, len(axes) - 0.95], "fixedrange": True},
            yaxis={"visible": False, "range": [-0.03, 1.03], "fixedrange": True},
            shapes=[vertical(n, 0, 1, layer="below") for n in range(len(axes))],
            annotations=[a for n, axis in enumerate(axes) for a in _labels(n, axis)],
        ),
        legend=tuple(replace(m, symbol="dot" if m.symbol == "dot" else "line") for m in reversed(groups)),
        elsewhere=TRIALS,
        least_px=_AXIS_PX * len(axes),
    )


def _setting(knob: str, row: TrialRow) -> Any:
    return row.config.get(knob)


def _axis(name: str, rows: Sequence[TrialRow], value: Callable[[TrialRow], Any]) -> _Axis | None:
    """Returns a linear or logarithmic axis for numbers, and equal distances for other values."""
    values = [v for r in rows if (v := value(r)) is not None]
    numbers = sorted({n for v in values if (n := units.number(v)) is not None})
    if not values:
        return None
    if any(units.number(v) is None for v in values):
        texts = sorted({words.setting(v) for v in values})
        at = {text: (n + 0.5) / len(texts) for n, text in enumerate(texts)}
        return _Axis(name, lambda r: at.get(words.setting(value(r))), [(y, text) for text, y in at.items()])
    low, high = numbers[0], numbers[-1]
    is_log = low > 0 and high / low >= _DECADE
    scaled: Callable[[float], float] = math.log if is_log else float
    span = (scaled(high) - scaled(low)) or 1.0

    def place(row: TrialRow) -> float | None:
        number = units.number(value(row))
        return None if number is None else (scaled(number) - scaled(low)) / span

    middle = math.sqrt(low * high) if is_log else (low + high) / 2
    labelled = numbers if len(numbers) <= _MOST_TICKS else [low, middle, high]
    return _Axis(name, place, _apart([((scaled(n) - scaled(low)) / span, _tick(n)) for n in labelled]))


def _apart(ticks: list[tuple[float, str]]) -> list[tuple[float, str]]:
    """Returns labels that do not overlap, lowest first, both ends included."""
    kept = ticks[:1]
    for tick in ticks[1:-1]:
        if tick[0] - kept[-1][0] >= _LEAST_APART <= ticks[-1][0] - tick[0]:
            kept.append(tick)
    return kept + ticks[1:][-1:]


def _tick(value: float) -> str:
    if value == int(value) or abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}" if abs(value) >= 0.01 else f"{value:.2g}"


def _bands(rows: Sequence[TrialRow]) -> dict[Mark, list[TrialRow]]:
    """Groups the trials by the mark of their line; the last group is drawn on top."""
    speeds = sorted(per_s(r) for r in rows if r.status == "completed" and r.throughput)
    thirds = [speeds[len(speeds) * n // 3] for n in (1, 2)] if speeds else []
    groups: dict[Mark, list[TrialRow]] = {mark: [] for mark in _ORDER}
    for row in rows:
        mark = marks.trial(row)
        if mark not in {marks.BASELINE, marks.WINNER}:
            mark = _FAILED if row.status == "failed" else _ENDED
            if row.status == "completed" and row.throughput:
                mark = (_SLOW, _MIDDLE, _FAST)[sum(per_s(row) >= limit for limit in thirds)]
        groups[mark].append(row)
    return {mark: members for mark, members in groups.items() if members}


def _lines(mark: Mark, rows: Sequence[TrialRow], axes: Sequence[_Axis]) -> Trace:
    """Returns all trials of a kind as one line with gaps."""
    x = [*range(len(axes)), None] * len(rows)
    y = [y for row in rows for y in (*(axis.place(row) for axis in axes), None)]
    if mark in {marks.BASELINE, marks.WINNER}:
        return line(mark, x, y, 3)
    return line(mark, x, y, 1.2, opacity=max(0.25, min(0.8, 40 / len(rows))))


def _labels(x: int, axis: _Axis) -> list[dict[str, Any]]:
    """Returns the name of an axis above it, and its ticks."""
    parts = textwrap.wrap(axis.name.replace("_", " "), _WIDEST, break_long_words=False)
    name = f"<b>{'<br>'.join(map(escape, parts))}</b>"
    look = {"font": {"color": "var(--ink)", "size": 11}, "bgcolor": "var(--veil)"}
    return [
        note(name, x, 1, xref="x", yref="y", xanchor="center", yshift=12, align="center"),
        *(
            note(escape(text), x, y, xref="x", yref="y", xshift=4, yanchor="middle", **look)
            for y, text in axis.ticks
        ),
    ]
