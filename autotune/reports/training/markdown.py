"""The report of a training as Markdown, short enough for the text of a pull request."""

from collections.abc import Iterable

from autotune.reports import words
from autotune.reports.markup import table, text
from autotune.reports.plot import Table
from autotune.reports.training import wording
from autotune.reports.training.model import TrainingReport


def render(report: TrainingReport) -> str:
    """The verdict, what was promised next to what was found, the figures, and what happened."""
    _, verdict, _ = wording.verdict(report)
    promised = wording.promised(report)
    blocks = [
        [f"## autotune train: {text(report.directory)}"],
        [f"**{verdict}.** {text(wording.sentence(report))}"],
        [text(wording.ended(report))],
        [f"- {text(line)}" for line in wording.seen(report)],
        _table(promised) if promised else [],
        table(["figure", ""], wording.figures(report)),
        _table(wording.happened(report)),
        [text(f"{report.workload} on {report.device}; {_settings(report)}")],
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _table(found: Table) -> list[str]:
    return table(found.head, found.rows)


def _settings(report: TrainingReport) -> str:
    return ", ".join(_setting(report.settings.items()))


def _setting(items: Iterable[tuple[str, object]]) -> list[str]:
    return [f"{name} {words.setting(value)}" for name, value in items]
