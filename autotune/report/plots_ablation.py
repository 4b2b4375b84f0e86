"""The ablation from the baseline to the winner: what each knob has brought. A pure function of a report."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from autotune.report import marks, words
from autotune.report.marks import Mark
from autotune.report.model import Report, Step
from autotune.report.plot import Plot, Table, Trace, above, bars, behind, instead, joint, plain, rows_layout

_GAIN = Mark("faster by this knob", "var(--gain)", "bar")
_LOSS = Mark("slower by this knob", "var(--failed)", "bar")


@dataclass(frozen=True)
class _Bar:
    """A row of the ablation: samples per second from and to, what was changed, and what that brought."""

    mark: Mark | None  # None: not measured
    what: str
    begin: float
    end: float
    brought: str


def ablation(report: Report) -> Plot | None:
    """The throughput after each knob; what was not measured says why. None without an ablation."""
    baseline, best = report.answer.baseline, report.answer.best
    if not report.ablation or baseline is None or baseline.throughput is None:
        return None
    start = baseline.throughput.value
    found = [_Bar(marks.BASELINE, "baseline", 0.0, start, words.rate(start)), *_steps(report.ablation, start)]
    end = best.throughput.value if best and best.throughput else found[-1].end
    found.append(_Bar(marks.WINNER, "recommended", 0.0, end, words.rate(end)))
    drawn = [mark for mark in (_GAIN, _LOSS) if any(bar.mark is mark for bar in found)]
    return Plot(
        id="ablation",
        title="Ablation: from baseline to recommended, one knob at a time",
        axes="Samples per second with each change on top of those above it.",
        label="; ".join(f"{bar.what}: {bar.brought}" for bar in found),
        data=[_trace(mark, found) for mark in (marks.BASELINE, *drawn, marks.WINNER)],
        layout=rows_layout(
            len(found),
            xaxis={"title": "samples per second", "range": [0, 1.12 * max(bar.end for bar in found)]},
            annotations=[note for row, bar in enumerate(found) for note in _notes(row, bar)],
            shapes=[joint(bar.end, row) for row, (bar, _) in enumerate(pairwise(found))],
        ),
        legend=tuple(drawn),
        table=_table(report.ablation),
    )


def _steps(steps: Sequence[Step], start: float) -> list[_Bar]:
    found, reached = [], start
    for step in steps:
        what = f"{step.knob}  {words.setting(step.before)} → {words.setting(step.after)}"
        if step.throughput is None:
            why = f"not measured: {step.reason}" if step.reason else "not measured"
            found.append(_Bar(None, what, reached, reached, why))
            continue
        end = step.throughput.value
        found.append(_Bar(_GAIN if end >= reached else _LOSS, what, reached, end, words.factor(step.factor)))
        reached = end
    return found


def _trace(mark: Mark, found: Sequence[_Bar]) -> Trace:
    chosen = [(row, bar) for row, bar in enumerate(found) if bar.mark is mark]
    texts = [f"{bar.what}: {words.rate(bar.end)} samples/s" for _, bar in chosen]
    return bars(
        mark,
        [row for row, _ in chosen],
        [bar.end - bar.begin for _, bar in chosen],
        texts,
        [bar.begin for _, bar in chosen],
    )


def _notes(row: int, bar: _Bar) -> list[dict[str, Any]]:
    title = above(f"<b>{plain(bar.what)}</b>", row)
    brought = (
        instead(bar.brought, row) if bar.mark is None else behind(bar.brought, max(bar.begin, bar.end), row)
    )
    return [title, brought]


def _table(steps: Sequence[Step]) -> Table:
    rows = (
        (
            *(step.knob, words.setting(step.before), words.setting(step.after)),
            words.throughput(step.throughput) if step.throughput else step.reason or "not measured",
            words.factor(step.factor),
            words.NOTHING if step.trial is None else str(step.trial),
        )
        for step in steps
    )
    return Table(("knob", "before", "after", "samples/s", "factor", "trial"), tuple(rows), numeric=(3, 4, 5))
