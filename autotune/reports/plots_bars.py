"""Horizontal bars: the speedup of each knob, and a sample's time by phase. Pure functions."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from autotune.display import words
from autotune.judging.decisions.ablation import AblationStep
from autotune.judging.measurement.estimates import Figure
from autotune.reports import answer, marks
from autotune.reports.marks import Mark
from autotune.reports.model import SessionReport, Side
from autotune.reports.plot import Plot, Table, Trace, escape, lines

_ROW_PX, _THICKNESS = 56, 0.42  # height of a row, and the bar's share of it
_MARGIN = 1.12  # right end of the axis, relative to the longest bar: leaves room for its text
_GAIN = Mark("faster by this setting", "var(--gain)", "bar")
_LOSS = Mark("slower by this setting", "var(--failed)", "bar")


@dataclass(frozen=True)
class _Bar:
    """A bar in a numbered row, with its hover text; `half` is half of the interval of its `end`."""

    row: int
    begin: float
    end: float
    text: str
    half: float = 0.0


def _trace(mark: Mark, bars: Sequence[_Bar]) -> Trace:
    halves = {"array": [bar.half for bar in bars], "visible": any(bar.half for bar in bars)}
    return {
        "type": "bar",
        "orientation": "h",
        "name": mark.label,
        "y": [bar.row for bar in bars],
        "x": [bar.end - bar.begin for bar in bars],
        "base": [bar.begin for bar in bars],
        "width": _THICKNESS,
        "hovertext": [escape(bar.text) for bar in bars],
        "hoverinfo": "text",
        "marker": {"color": mark.colour, "line": {"color": "var(--surface)", "width": 1}},
        "error_x": {"type": "data", **halves, "color": "var(--ink)", "thickness": 1, "width": 4},
    }


def _layout(rows: int, **rest: Any) -> dict[str, Any]:
    """Returns the layout for rows of bars; titles are above them, which suits narrow screens."""
    axis = {"range": [rows - 0.5, -0.75], "showticklabels": False, "showgrid": False, "fixedrange": True}
    return {"height": 70 + _ROW_PX * rows, "barmode": "overlay", "yaxis": axis, **rest}


def _note(text: str, x: float, row: int, **rest: Any) -> dict[str, Any]:
    font = {"color": "var(--ink)", "size": 13}
    return {"text": text, "x": x, "y": row, "yref": "y", **rest, "font": font}


def _title(text: str, detail: str, row: int) -> dict[str, Any]:
    bold = f"<b>{escape(text)}</b>"
    return _note(f"{bold}  {escape(detail)}" if detail else bold, 0, row, yshift=13)


@dataclass(frozen=True)
class _Change:
    """A row of the ablation, in samples per second; if it was not measured, `text` says why."""

    title: str
    text: str  # at the end of the bar
    mark: Mark | None = None  # None: not measured
    begin: float = 0.0
    end: float = 0.0
    half: float = 0.0  # of the interval of `end`
    interval: str = ""  # of the factor


def ablation(report: SessionReport) -> Plot | None:
    """Returns the throughput after each change, or why it was not measured; None without an ablation."""
    baseline, best, unit = report.answer.baseline, report.answer.best, report.unit
    if not report.ablation or baseline is None or baseline.throughput is None:
        return None
    rows = [_whole(marks.BASELINE, baseline.throughput)]
    for step in report.ablation:
        rows.append(_change(step, rows[-1].end))
    if best is not None and best.throughput is not None:
        rows.append(_whole(marks.WINNER, best.throughput))
    rest = [(f"{unit} {line.over}", line.factor.text) for line in answer.fewer_samples(report)]
    rows += [_Change(title, factor) for title, factor in rest]
    bars: dict[Mark, list[_Bar]] = {mark: [] for mark in (marks.BASELINE, _GAIN, _LOSS, marks.WINNER)}
    notes, shapes, thin = [], [], {"type": "line", "line": {"color": "var(--rule)", "width": 1}}
    for n, row in enumerate(rows):
        notes.append(_title(row.title, row.interval, n))
        if row.mark is None:  # the text is in place of the missing bar
            notes.append(_note(lines(row.text), 0, n, yshift=12, yanchor="top"))
        else:
            text = f"{row.title}: {words.rate(row.end)} {unit}/s"
            bars[row.mark].append(_Bar(n, row.begin, row.end, text, row.half))
            right = max(row.begin, row.end + row.half)
            notes.append(_note(escape(row.text), right, n, xref="x", xshift=5, yanchor="middle"))
        top, bottom = n + _THICKNESS / 2, n + 1 - _THICKNESS / 2
        shapes.append({"x0": row.end, "x1": row.end, "y0": top, "y1": bottom, **thin})
    return Plot(
        id="ablation",
        title="Ablation: from baseline to recommended, one setting at a time",
        axes=f"{unit.capitalize()} per second with each change on top of those above it. The factors "
        "multiply to the gain. An effect that settings have only together counts for the later one.",
        label="; ".join(f"{row.title}: {row.text}" for row in rows),
        data=[_trace(mark, each) for mark, each in bars.items() if each],
        layout=_layout(
            len(rows),
            xaxis={
                "title": f"{unit} per second",
                "range": [0, _MARGIN * max(row.end + row.half for row in rows)],
            },
            annotations=notes,
            shapes=shapes[:-1],
        ),
        legend=tuple(mark for mark in (_GAIN, _LOSS) if bars[mark]),
        table=_ablation_table(report, rest),
    )


def _whole(mark: Mark, throughput: Figure) -> _Change:
    end, half = throughput.value, words.half_width(throughput) or 0.0
    return _Change(mark.label, words.rate(end), mark, 0.0, end, half)


def _change(step: AblationStep, reached: float) -> _Change:
    """Returns the row of a step that starts from `reached` samples per second."""
    together = f", with {' and '.join(step.together)}" if step.together else ""
    title = f"{step.knob}  {words.setting(step.before)} → {words.setting(step.after)}{together}"
    if step.throughput is None:
        text = f"not measured: {step.reason}" if step.reason else "not measured"
        return _Change(title, text, begin=reached, end=reached)
    end, half = step.throughput.value, words.half_width(step.throughput) or 0.0
    mark, interval = _GAIN if end >= reached else _LOSS, words.factor.interval(step.factor)
    return _Change(title, words.factor(step.factor), mark, reached, end, half, interval)


def _ablation_table(report: SessionReport, rest: Sequence[tuple[str, str]]) -> Table:
    rows = [
        (
            *(", ".join((*step.together, step.knob)), words.setting(step.before), words.setting(step.after)),
            words.rate(step.throughput) if step.throughput else step.reason or "not measured",
            *(words.factor(step.factor), words.factor.interval(step.factor) or words.NOTHING),
            words.NOTHING if step.trial is None else str(step.trial),
        )
        for step in report.ablation
    ]
    none = words.NOTHING
    rows += [(title, none, none, none, factor, none, none) for title, factor in rest]
    head = ("setting", "before", "after", f"{report.unit}/s", "factor", "interval", "trial")
    return Table(head, tuple(rows), numeric=(3, 4, 5, 6))


def step_time(report: SessionReport) -> Plot | None:
    """Returns milliseconds per sample by phase, baseline above winner; their steps may differ in size."""
    sides = [(mark.label, side, found) for mark, side in answer.sides(report) if (found := _sample_s(side))]
    if not sides:
        return None
    each, phases = report.each, marks.phases(name for _, _, sample_s in sides for name in sample_s)
    totals = {label: f"{words.milliseconds(sum(sample_s.values()))} ms" for label, _, sample_s in sides}
    bars: dict[Mark, list[_Bar]] = {phase: [] for phase in phases}
    cells: dict[Mark, list[str]] = {phase: [phase.label] for phase in phases}
    head = ["part"]
    for row, (label, side, sample_s) in enumerate(sides):
        head += [f"{label}, ms per {each}", f"{label}, ms per step"]
        seconds = [sample_s.get(phase.label, 0.0) for phase in phases]
        for phase, s, end in zip(phases, seconds, accumulate(seconds), strict=True):
            text = f"{phase.label}: {words.milliseconds(s)} ms, {words.share(s / sum(seconds))}"
            bars[phase].append(_Bar(row, 1000 * (end - s), 1000 * end, text))
            cells[phase] += [words.milliseconds(times.get(phase.label)) for times in (sample_s, side.step_s)]
    return Plot(
        id="step-time",
        title=f"Time per {each}",
        axes=f"Milliseconds of training per {each}, by part of a step. Evaluations are left out.",
        label="; ".join(f"{label} {total} per {each}" for label, total in totals.items()),
        data=[_trace(phase, of_phase) for phase, of_phase in bars.items()],
        layout=_layout(
            len(sides),
            xaxis={"title": f"ms per {each}", "rangemode": "tozero"},
            annotations=[_title(*total, row) for row, total in enumerate(totals.items())],
        ),
        legend=tuple(phases),
        table=Table(tuple(head), tuple(map(tuple, cells.values())), numeric=tuple(range(1, len(head)))),
    )


def _sample_s(side: Side) -> dict[str, float]:
    """Returns the seconds of a sample by phase; empty if they are unknown."""
    step_s = sum(side.step_s.values())
    if side.throughput is None or side.throughput.value <= 0 or step_s <= 0:
        return {}
    return {name: seconds / step_s / side.throughput.value for name, seconds in side.step_s.items()}
