"""A report as JSON for scripts: the fields of its dataclasses by name."""

from autotune.display import events
from autotune.reports.model import SessionReport

FORMAT = 1


def render(report: SessionReport) -> str:
    """Returns `report` as strict JSON; NaN and infinities become null."""
    return events.line({"format": FORMAT, **vars(report)}, indent=2) + "\n"
