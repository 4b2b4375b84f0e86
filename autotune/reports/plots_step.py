"""The time of a sample, part by part of a step. A pure function of a report."""

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.display import words
from autotune.reports import answer, marks
from autotune.reports.marks import Mark
from autotune.reports.model import Report, Side
from autotune.reports.plot import Plot, Table, Trace, above, bars, plain, rows_layout


@dataclass(frozen=True)
class _Part:
    """One side's seconds by phase, of a sample and of a step."""

    label: str
    sample_s: dict[str, float]
    side: Side

    @property
    def whole_s(self) -> float:
        return sum(self.sample_s.values())


def step_time(report: Report) -> Plot | None:
    """Milliseconds per sample by phase, baseline above winner: a step's phases at the measured throughput.

    A step of one side may have many more samples than one of the other: only the time of a sample compares.
    """
    found = [
        _Part(mark.label, sample_s, side)
        for mark, side in answer.sides(report)
        if (sample_s := _per_sample(side))
    ]
    if not found:
        return None
    each = report.each
    phases = marks.phases(name for part in found for name in part.sample_s)
    return Plot(
        id="step-time",
        title=f"A {each}'s time, part by part",
        axes=f"Milliseconds of training per {each}, by part of a step. Evaluations are left out.",
        label="; ".join(f"{part.label} {words.milliseconds(part.whole_s)} ms per {each}" for part in found),
        data=[_bars(phase, found) for phase in phases],
        layout=rows_layout(
            len(found),
            barmode="stack",
            xaxis={"title": f"ms per {each}"},
            annotations=[
                above(f"<b>{plain(part.label)}</b>  {words.milliseconds(part.whole_s)} ms", row)
                for row, part in enumerate(found)
            ],
        ),
        legend=tuple(phases),
        table=_table(phases, found, each),
    )


def _per_sample(side: Side) -> dict[str, float]:
    whole = sum(side.step_s.values())
    if side.throughput is None or side.throughput.value <= 0 or whole <= 0:
        return {}
    return {name: seconds / whole / side.throughput.value for name, seconds in side.step_s.items()}


def _bars(phase: Mark, found: Sequence[_Part]) -> Trace:
    seconds = [part.sample_s.get(phase.label, 0.0) for part in found]
    texts = [
        f"{phase.label}: {words.milliseconds(value)} ms, {words.share(value / part.whole_s)}"
        for value, part in zip(seconds, found, strict=True)
    ]
    return bars(phase, range(len(found)), [1000 * value for value in seconds], texts)


def _table(phases: Sequence[Mark], found: Sequence[_Part], each: str) -> Table:
    head = [text for part in found for text in (f"{part.label}, ms per {each}", f"{part.label}, ms per step")]
    rows = (
        (
            phase.label,
            *(
                words.milliseconds(seconds.get(phase.label))
                for part in found
                for seconds in (part.sample_s, part.side.step_s)
            ),
        )
        for phase in phases
    )
    return Table(("part", *head), tuple(rows), numeric=tuple(range(1, len(head) + 1)))
