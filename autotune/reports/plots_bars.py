"""Horizontal bars: the speedup of each knob, and a sample's time by phase. Pure functions."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from autotune.display import words
from autotune.judging.decisions.ablation import AblationStep
from autotune.judging.measurement.estimates import Figure
from autotune.reports import answer, marks
from autotune.reports.marks import Mark
from autotune.reports.model import SessionReport, Side
from autotune.reports.plot import Plot, Table, Trace, above, bars, behind, instead, joint, plain, rows_layout

_ROOM = 1.12  # right end of the axis, relative to the longest bar: leaves room for its text
_GAIN = Mark("faster by this setting", "var(--gain)", "bar")
_LOSS = Mark("slower by this setting", "var(--failed)", "bar")


@dataclass(frozen=True)
class _Bar:
    """A row of the ablation, in samples per second."""

    mark: Mark | None  # None: not measured
    what: str  # the change
    begin: float
    end: float
    brought: str  # its factor
    half: float = 0.0  # half of the interval of `end`
    sure: str = ""  # the interval of the factor


def ablation(report: SessionReport) -> Plot | None:
    """Returns the throughput after each change, or why it was not measured; None without an ablation."""
    baseline, best = report.answer.baseline, report.answer.best
    if not report.ablation or baseline is None or baseline.throughput is None:
        return None
    rows = [_whole(marks.BASELINE, baseline.throughput), *_steps(report.ablation, baseline.throughput.value)]
    if best is not None and best.throughput is not None:
        rows.append(_whole(marks.WINNER, best.throughput))
    rows += [_Bar(None, rest, 0.0, 0.0, factor) for rest, factor in _rest(report)]
    drawn = [mark for mark in (_GAIN, _LOSS) if any(bar.mark is mark for bar in rows)]
    return Plot(
        id="ablation",
        title="Ablation: from baseline to recommended, one setting at a time",
        axes=f"{report.unit.capitalize()} per second with each change on top of those above it. The factors "
        "multiply to the gain; what settings do only together counts for the later one.",
        label="; ".join(f"{bar.what}: {bar.brought}" for bar in rows),
        data=[_trace(mark, rows, report.unit) for mark in (marks.BASELINE, *drawn, marks.WINNER)],
        layout=rows_layout(
            len(rows),
            xaxis={
                "title": f"{report.unit} per second",
                "range": [0, _ROOM * max(bar.end + bar.half for bar in rows)],
            },
            annotations=[note for row, bar in enumerate(rows) for note in _notes(row, bar)],
            shapes=[joint(bar.end, row) for row, (bar, _) in enumerate(pairwise(rows))],
        ),
        legend=tuple(drawn),
        table=_table(report),
    )


def _whole(mark: Mark, throughput: Figure) -> _Bar:
    """Returns the bar of a whole configuration."""
    half = words.half_width(throughput) or 0.0
    return _Bar(mark, mark.label, 0.0, throughput.value, words.rate(throughput.value), half)


def _rest(report: SessionReport) -> list[tuple[str, str]]:
    """Returns the part of the gain that is not throughput."""
    return [(f"{report.unit} {line.over}", line.factor.text) for line in answer.fewer_samples(report)]


def _steps(steps: Sequence[AblationStep], start: float) -> list[_Bar]:
    rows, reached = [], start
    for step in steps:
        what = _what(step)
        if step.throughput is None:
            why = f"not measured: {step.reason}" if step.reason else "not measured"
            rows.append(_Bar(None, what, reached, reached, why))
            continue
        end, half = step.throughput.value, words.half_width(step.throughput) or 0.0
        brought, sure = words.factor(step.factor), words.factor.interval(step.factor)
        rows.append(_Bar(_GAIN if end >= reached else _LOSS, what, reached, end, brought, half, sure))
        reached = end
    return rows


def _what(step: AblationStep) -> str:
    """Returns e.g. `num_workers  2 → 0`, and the changes above it that its factor includes."""
    together = f", with {' and '.join(step.together)}" if step.together else ""
    return f"{step.knob}  {words.setting(step.before)} → {words.setting(step.after)}{together}"


def _trace(mark: Mark, rows: Sequence[_Bar], unit: str) -> Trace:
    chosen = [(row, bar) for row, bar in enumerate(rows) if bar.mark is mark]
    texts = [f"{bar.what}: {words.rate(bar.end)} {unit}/s" for _, bar in chosen]
    return bars(
        mark,
        [row for row, _ in chosen],
        [bar.end - bar.begin for _, bar in chosen],
        texts,
        [bar.begin for _, bar in chosen],
    ) | {"error_x": _errors([bar.half for _, bar in chosen])}


def _errors(halves: Sequence[float]) -> dict[str, Any]:
    """Returns error bars at the ends of bars."""
    look = {"color": "var(--ink)", "thickness": 1, "width": 4}
    return {"type": "data", "array": list(halves), "visible": any(halves)} | look


def _notes(row: int, bar: _Bar) -> list[dict[str, Any]]:
    title = above(f"<b>{plain(bar.what)}</b>" + (f"  {plain(bar.sure)}" if bar.sure else ""), row)
    far = max(bar.begin, bar.end + bar.half)
    brought = instead(bar.brought, row) if bar.mark is None else behind(bar.brought, far, row)
    return [title, brought]


def _table(report: SessionReport) -> Table:
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
    rows += [(rest, none, none, none, factor, none, none) for rest, factor in _rest(report)]
    head = ("setting", "before", "after", f"{report.unit}/s", "factor", "interval", "trial")
    return Table(head, tuple(rows), numeric=(3, 4, 5, 6))


@dataclass(frozen=True)
class _Part:
    """One side's seconds of a sample by phase."""

    label: str
    sample_s: dict[str, float]
    side: Side

    @property
    def whole_s(self) -> float:
        return sum(self.sample_s.values())


def step_time(report: SessionReport) -> Plot | None:
    """Returns milliseconds per sample by phase, baseline above winner.

    Steps of the two sides may differ in samples, so that only the time of a sample compares.
    """
    parts = [
        _Part(mark.label, sample_s, side)
        for mark, side in answer.sides(report)
        if (sample_s := _per_sample(side))
    ]
    if not parts:
        return None
    each = report.each
    phases = marks.phases(name for part in parts for name in part.sample_s)
    return Plot(
        id="step-time",
        title=f"A {each}'s time, part by part",
        axes=f"Milliseconds of training per {each}, by part of a step. Evaluations are left out.",
        label="; ".join(f"{part.label} {words.milliseconds(part.whole_s)} ms per {each}" for part in parts),
        data=[_phase_bars(phase, parts) for phase in phases],
        layout=rows_layout(
            len(parts),
            barmode="stack",
            xaxis={"title": f"ms per {each}"},
            annotations=[
                above(f"<b>{plain(part.label)}</b>  {words.milliseconds(part.whole_s)} ms", row)
                for row, part in enumerate(parts)
            ],
        ),
        legend=tuple(phases),
        table=_phase_table(phases, parts, each),
    )


def _per_sample(side: Side) -> dict[str, float]:
    whole = sum(side.step_s.values())
    if side.throughput is None or side.throughput.value <= 0 or whole <= 0:
        return {}
    return {name: seconds / whole / side.throughput.value for name, seconds in side.step_s.items()}


def _phase_bars(phase: Mark, parts: Sequence[_Part]) -> Trace:
    seconds = [part.sample_s.get(phase.label, 0.0) for part in parts]
    texts = [
        f"{phase.label}: {words.milliseconds(value)} ms, {words.share(value / part.whole_s)}"
        for value, part in zip(seconds, parts, strict=True)
    ]
    return bars(phase, range(len(parts)), [1000 * value for value in seconds], texts)


def _phase_table(phases: Sequence[Mark], parts: Sequence[_Part], each: str) -> Table:
    head = [text for part in parts for text in (f"{part.label}, ms per {each}", f"{part.label}, ms per step")]
    rows = (
        (
            phase.label,
            *(
                words.milliseconds(seconds.get(phase.label))
                for part in parts
                for seconds in (part.sample_s, part.side.step_s)
            ),
        )
        for phase in phases
    )
    return Table(("part", *head), tuple(rows), numeric=tuple(range(1, len(head) + 1)))
