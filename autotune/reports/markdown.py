"""A report as Markdown, short enough for the text of a pull request."""

import html
import re

from autotune.core.errors import printable
from autotune.reports import answer, elsewhere, tables
from autotune.reports.model import SessionReport
from autotune.reports.plot import Table

_SPECIAL = re.compile(r"([\\`*_\[\]|~#!@$])")
_FACTS = ("hardware", "versions", "revision", "data", "created")


def render(report: SessionReport) -> str:
    """Returns the answer of a session, with its evidence."""
    result = report.answer
    own = [table for table in report.own.tables if not table.is_detail] if report.own else []
    other_gpus = []
    if forecast := report.elsewhere:
        notes = [f"- {_text(note)}" for note in elsewhere.notes(forecast)]
        other_gpus = [[f"{elsewhere.TITLE}:"], _table(elsewhere.table(forecast)), notes]
    commands = [printable(command) for command in result.commands]
    # Nothing in the commands can close their block.
    fence = max(["```", *(f"{run}`" for line in commands for run in re.findall("`+", line))], key=len)
    facts = [f"{name} {report.provenance[name]}" for name in _FACTS if report.provenance.get(name)]
    blocks = [
        [f"## autotune: {_text(report.session)}"],
        [_text(result.promise)] if result.promise else [],
        [_text(result.sentence)],
        _sides(report),
        [f"- {_text(line)}" for line in (*result.cautions, *result.outside)],
        [_text(report.which_precision.sentence)] if report.which_precision else [],
        _table(tables.scores(report)) if report.compared else [],
        *(_table(Table((one.title, *one.head[1:]), tuple(map(tuple, one.rows)))) for one in own),
        *other_gpus,
        [f"{fence}sh", *commands, fence] if commands else [],
        [_text("; ".join([*facts, f"{report.samples_per_trial:,} {report.unit} per trial"]))],
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _sides(report: SessionReport) -> list[str]:
    baseline, best = report.answer.baseline, report.answer.best
    if baseline is None or best is None:
        return []
    rows = [("settings", baseline.knobs, best.knobs, "")]
    for line in answer.lines(report):
        name = f"{line.name}, {line.over}" if line.over else line.name
        rows.append((name, str(line.baseline), str(line.best), str(line.factor)))
    if answer.is_better(report):
        return _table(Table(("figure", "baseline", f"trial {best.trial}", "factor"), tuple(rows)))
    return _table(Table(("figure", "baseline"), tuple(row[:2] for row in rows)))


def _table(table: Table) -> list[str]:
    ruler = ["---", *(["---:"] * (len(table.head) - 1))]
    head, *rows = ([_text(cell) for cell in line] for line in (table.head, *table.rows))
    return [f"| {' | '.join(line)} |" for line in (head, ruler, *rows)]


def _text(text: str) -> str:
    """Escapes `text`, so that nothing in it is markup or ends a line or a table cell."""
    return _SPECIAL.sub(r"\\\1", html.escape(printable(text), quote=False))
