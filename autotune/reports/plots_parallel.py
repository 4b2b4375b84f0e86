"""All configurations in parallel coordinates, drawn as ordinary lines, which print and need no WebGL."""

import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from autotune.core import units
from autotune.display import words
from autotune.display.rows import TrialRow
from autotune.reports import marks
from autotune.reports.marks import Mark
from autotune.reports.model import SessionReport
from autotune.reports.plot import TRIALS, Plot, Trace, layout, line, note, per_s, plain, quality

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
    """One knob or figure."""

    name: str
    place: Callable[[TrialRow], float | None]  # from 0 to 1; None if the trial has no value
    ticks: Sequence[tuple[float, str]]


def parallel(report: SessionReport) -> Plot | None:
    """Returns the varied knobs, throughput and quality; None before two trials differ."""
    rows = [r for r in report.trials if r.kind in {"baseline", "winner", "trial"}]
    knobs = _varied(rows)
    if not knobs:
        return None
    name = words.metric(report.quality)
    candidates = [
        *(_axis(knob, rows, _setting(knob)) for knob in knobs),
        _axis(f"{report.unit}/s", rows, lambda r: per_s(r) or None),
        _axis(name, rows, quality),
    ]
    axes = [axis for axis in candidates if axis is not None]
    bands = _bands(rows)
    groups = [(mark, [r for r in rows if bands[r.number] == mark]) for mark in _ORDER]
    shown = [(mark, members) for mark, members in groups if members]
    return Plot(
        id="parallel",
        title="Every configuration",
        axes="One line per trial, through its value of each setting to its results.",
        label=f"{words.plural(len(rows), 'configuration')} over {', '.join(knobs)}, throughput and {name}",
        data=[_lines(mark, members, axes) for mark, members in shown],
        layout=layout(
            380,
            margin={"l": 34, "r": 34, "t": 64, "b": 10},
            xaxis={"visible": False, "range": [-0.05, len(axes) - 0.95], "fixedrange": True},
            yaxis={"visible": False, "range": [-0.03, 1.03], "fixedrange": True},
            shapes=[_rule(n) for n in range(len(axes))],
            annotations=[a for n, axis in enumerate(axes) for a in _labels(n, axis)],
        ),
        legend=tuple(replace(m, symbol="dot" if m.symbol == "dot" else "line") for m, _ in reversed(shown)),
        elsewhere=TRIALS,
        least_px=_AXIS_PX * len(axes),
    )


def _varied(rows: Sequence[TrialRow]) -> list[str]:
    names = dict.fromkeys(name for r in rows for name in r.config)
    return [name for name in names if len({repr(r.config.get(name)) for r in rows}) > 1]


def _setting(knob: str) -> Callable[[TrialRow], Any]:
    return lambda row: row.config.get(knob)


def _axis(name: str, rows: Sequence[TrialRow], value: Callable[[TrialRow], Any]) -> _Axis | None:
    """Returns a linear or logarithmic axis for numbers, and equal distances for other values."""
    values = [v for r in rows if (v := value(r)) is not None]
    numbers = [n for v in values if (n := units.number(v)) is not None]
    if not values:
        return None
    if len(numbers) < len(values):
        texts = sorted({words.setting(v) for v in values})
        at = {text: (n + 0.5) / len(texts) for n, text in enumerate(texts)}
        return _Axis(name, lambda r: at.get(words.setting(value(r))), [(y, text) for text, y in at.items()])
    low, high = min(numbers), max(numbers)
    is_log = low > 0 and high / low >= _DECADE
    scaled: Callable[[float], float] = math.log if is_log else float
    span = (scaled(high) - scaled(low)) or 1.0

    def place(number: float | None) -> float | None:
        return None if number is None else (scaled(number) - scaled(low)) / span

    few = sorted(set(numbers))
    middle = math.sqrt(low * high) if is_log else (low + high) / 2
    ticks = [(place(n) or 0.0, _tick(n)) for n in (few if len(few) <= _MOST_TICKS else [low, middle, high])]
    return _Axis(name, lambda r: place(units.number(value(r))), _apart(ticks))


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


def _bands(rows: Sequence[TrialRow]) -> dict[int, Mark]:
    """Returns the line's mark for each trial, by number."""
    speeds = sorted(r.throughput.value for r in rows if r.status == "completed" and r.throughput)
    thirds = [speeds[len(speeds) * n // 3] for n in (1, 2)] if speeds else []
    bands = {}
    for row in rows:
        mark = marks.trial(row)
        if mark not in {marks.BASELINE, marks.WINNER}:
            mark = _FAILED if row.status == "failed" else _ENDED
            if row.status == "completed" and row.throughput:
                mark = (_SLOW, _MIDDLE, _FAST)[sum(row.throughput.value >= limit for limit in thirds)]
        bands[row.number] = mark
    return bands


def _lines(mark: Mark, rows: Sequence[TrialRow], axes: Sequence[_Axis]) -> Trace:
    """Returns all trials of a kind as one line with gaps."""
    x: list[float | None] = []
    y: list[float | None] = []
    for row in rows:
        for n, axis in enumerate(axes):
            x.append(n)
            y.append(axis.place(row))
        x.append(None)
        y.append(None)
    width = 3 if mark in {marks.BASELINE, marks.WINNER} else 1.2
    opacity = 1 if width == 3 else max(0.25, min(0.8, 40 / len(rows)))
    return line(mark, x, y, width, opacity=opacity)


def _rule(x: int) -> dict[str, Any]:
    edge = {"color": "var(--rule)", "width": 1}
    return {"type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "line": edge, "layer": "below"}


def _labels(x: int, axis: _Axis) -> list[dict[str, Any]]:
    name = "<br>".join(
        plain(part) for part in textwrap.wrap(axis.name.replace("_", " "), _WIDEST, break_long_words=False)
    )
    head = note(f"<b>{name}</b>", x, 1, xref="x", yref="y", xanchor="center", yshift=12, align="center")
    ticks = [
        note(plain(text), x, y, xref="x", yref="y", xshift=4, yanchor="middle", bgcolor="var(--veil)")
        | {"font": {"color": "var(--ink)", "size": 11}}
        for y, text in axis.ticks
    ]
    return [head, *ticks]
