"""The sections of a report in order, without those that its workload cannot fill. Pure."""

from dataclasses import dataclass

from autotune.core.settings import MICRO_BATCH
from autotune.reports import answer
from autotune.reports.model import SessionReport
from autotune.reports.training.model import TrainingReport


@dataclass(frozen=True)
class Section:
    """A section of the page."""

    name: str  # its ID and its template
    number: int
    label: str  # its entry in the navigation


_LABELS = {
    "answer": "Answer",
    "front": "Trade-off",
    "speed": "Speed",
    "quality": "Quality",
    "own": "",  # the workload names it
    "elsewhere": "Other GPUs",
    "search": "Search",
    "provenance": "Provenance",
}
_OF_TRAINING = {
    "answer": "Verdict",
    "learning": "Learning",
    "speed": "Speed",
    "machine": "Machine",
    "events": "Events",
    "settings": "Settings",
}


def sections(report: SessionReport | TrainingReport) -> list[Section]:
    """Returns the sections, numbered from 1."""
    labels = _OF_TRAINING if isinstance(report, TrainingReport) else _session_labels(report)
    return [Section(name, number, label) for number, (name, label) in enumerate(labels.items(), start=1)]


def _session_labels(report: SessionReport) -> dict[str, str]:
    """Returns the labels of the sections that a session can have, by name.

    The section on speed stays until a trial is measured.
    """
    labels = dict(_LABELS)
    if report.own:
        labels["own"] = report.own.title
    else:
        del labels["own"]
    if report.elsewhere is None:
        del labels["elsewhere"]
    is_measured = any(row.throughput is not None for row in report.trials)
    by_batch = any(MICRO_BATCH in row.config for row in report.trials)
    by_phase = any(side.step_s for _, side in answer.sides(report))
    has_speed = by_batch or by_phase or bool(report.ablation) or answer.is_recommended(report)
    if is_measured and not has_speed:
        del labels["speed"]
    return labels
