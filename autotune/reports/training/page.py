"""The report of a training as one HTML file, in the frame that a session's report has."""

from dataclasses import dataclass

from autotune.core.shell import quoted
from autotune.reports import page
from autotune.reports.plot import Plot
from autotune.reports.sections import Section
from autotune.reports.training import plots, wording
from autotune.reports.training.model import TrainingReport

_SECTIONS = {
    "answer": "Verdict",
    "learning": "Learning",
    "speed": "Speed",
    "machine": "Machine",
    "events": "Events",
    "settings": "Settings",
}


@dataclass(frozen=True)
class _Plots:
    """Every plot of a training, by its section."""

    learning: list[Plot]
    speed: list[Plot]
    machine: list[Plot]

    @property
    def all(self) -> list[Plot]:
        return [*self.learning, *self.speed, *self.machine]


def render(report: TrainingReport) -> str:
    """The whole page."""
    drawn = _Plots(plots.learning(report), plots.speed(report), plots.machine(report))
    sections = [Section(name, n, label) for n, (name, label) in enumerate(_SECTIONS.items(), start=1)]
    return page.framed(
        "training.html.j2",
        drawn.all,
        title=report.directory,
        report=report,
        plots=drawn,
        sections=sections,
        numbers={section.name: section.number for section in sections},
        wording=wording,
        directory=quoted(report.directory),
    )
