"""A report as JSON, for scripts: the fields of its dataclasses, under their names."""

from autotune.display import events
from autotune.reports.model import Report
from autotune.reports.training.model import TrainingReport

FORMAT = 1


def render(report: Report | TrainingReport) -> str:
    """Returns `report` as strict JSON: a number that is not finite is null."""
    return events.line({"format": FORMAT, **vars(report)}, indent=2) + "\n"
