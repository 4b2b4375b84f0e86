"""The report as one self-contained HTML file: template, style, script and plots."""

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from autotune.core.errors import printable
from autotune.core.settings import MICRO_BATCH
from autotune.core.shell import quoted
from autotune.display import words
from autotune.reports import (
    answer,
    elsewhere,
    marks,
    plots_bars,
    plots_front,
    plots_quality,
    plots_speed,
    tables,
)
from autotune.reports.model import SessionReport
from autotune.reports.plot import Plot

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


@dataclass(frozen=True)
class Section:
    """A section of the page."""

    name: str  # its ID and its template
    number: int
    label: str  # its entry in the navigation


def render(report: SessionReport) -> str:
    """Returns the whole page."""
    plots = plots_of(report)
    figures = {plot.id: plot.figure for place in plots.values() for plot in place}
    templates = resources.files("autotune.reports") / "templates"
    plotly = resources.files("plotly") / "package_data" / "plotly.min.js"
    library, script = (
        _script(file.read_text(encoding="utf-8")) for file in (plotly, templates / "report.js")
    )
    style = (templates / "report.css").read_text(encoding="utf-8")
    hashes = (base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in (library, script))
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    policy = (  # only the page's own scripts, and no request
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    page = environment().get_template("page.html.j2")
    return page.render(
        path=quoted(report.session),
        report=report,
        plots=plots,
        sections=sections(report),
        figures=htmlsafe_json_dumps(figures, separators=(",", ":"), allow_nan=False, ensure_ascii=False),
        library=library,
        script=script,
        style=Markup(style),  # noqa: S704 - the package's own
        policy=policy,
    )


def sections(report: SessionReport) -> list[Section]:
    """Returns the sections of a session, numbered from 1; that on speed stays until a trial is measured."""
    labels = _LABELS | {"own": report.own.title if report.own else ""}
    is_measured = any(row.throughput is not None for row in report.trials)
    by_batch = any(MICRO_BATCH in row.config for row in report.trials)
    by_phase = any(side.step_s for _, side in answer.sides(report))
    has_speed = by_batch or by_phase or bool(report.ablation) or answer.is_recommended(report)
    missing = {
        "own": report.own is None,
        "elsewhere": report.elsewhere is None,
        "speed": is_measured and not has_speed,
    }
    names = [name for name in labels if not missing.get(name)]
    return [Section(name, number, labels[name]) for number, name in enumerate(names, start=1)]


def plots_of(report: SessionReport) -> dict[str, list[Plot]]:
    """Returns the plots of a session's report by their place; a plot without data is left out."""
    plots: dict[str, Sequence[Plot | None]] = {
        "batches": plots_speed.by_batch(report),
        "quality": plots_quality.search_runs(report),
        "compared": plots_quality.compared_models(report),
        "front": [plots_front.front(report)],
        "step": [plots_bars.step_time(report)],
        "ablation": [plots_bars.ablation(report)],
        "history": [plots_front.history(report)],
    }
    return {place: [plot for plot in each if plot] for place, each in plots.items()}


@cache
def environment() -> Environment:
    """Returns the Jinja environment of this package's templates; it escapes values."""
    jinja = Environment(
        loader=PackageLoader("autotune.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    jinja.globals |= {
        "answer": answer,
        "elsewhere": elsewhere,
        "marks": marks,
        "tables": tables,
        "words": words,
    }
    return jinja


def _finalize(value: Any) -> Any:
    """Removes characters that change the text direction, except in the page's own parts."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _script(text: str) -> Markup:
    """Escapes what HTML would read as the start or end of a script; JavaScript reads it unchanged."""
    safe = re.sub(r"<(?=/?script|!--)", r"\\x3c", text, flags=re.IGNORECASE)
    return Markup(safe)  # noqa: S704 - the package's own, and plotly's
