"""The sections of a report, in their order: those that its workload has, and no others. Pure."""

from dataclasses import dataclass

from autotune.core.settings import MICRO_BATCH
from autotune.reports import answer
from autotune.reports.model import Report


@dataclass(frozen=True)
class Section:
    """A part of the page: `name` is its id and its template, `label` its entry in the navigation."""

    name: str
    number: int
    label: str


_LABELS = {
    "answer": "Answer",
    "front": "Front",
    "speed": "Speed",
    "quality": "Quality",
    "own": "",  # the workload says how it is called
    "elsewhere": "Other GPUs",
    "search": "Search",
    "provenance": "Provenance",
}


def sections(report: Report) -> list[Section]:
    """The sections, numbered from 1."""
    present = {
        "speed": _tells_of_speed(report),
        "own": report.own is not None,
        "elsewhere": report.elsewhere is not None,
    }
    names = [name for name in _LABELS if present.get(name, True)]
    labels = {**_LABELS, "own": report.own.title if report.own else ""}
    return [Section(name, number, labels[name]) for number, name in enumerate(names, start=1)]


def _tells_of_speed(report: Report) -> bool:
    """Whether there is anything to see of where speed comes from, or may be once a trial is measured."""
    is_measured = any(row.throughput is not None for row in report.trials)
    by_batch = any(MICRO_BATCH in row.config for row in report.trials)
    by_phase = any(side.step_s for _, side in answer.sides(report))
    return not is_measured or by_batch or by_phase or bool(report.ablation) or answer.is_recommended(report)
