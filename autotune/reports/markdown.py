"""A report as Markdown, short enough for the text of a pull request."""

import re
from collections.abc import Sequence

from autotune.compare.results import on_test
from autotune.core import units
from autotune.core.errors import printable
from autotune.judging.costs import Cost, Prices
from autotune.judging.estimates import Figure
from autotune.reports import elsewhere, words
from autotune.reports.markup import table as _table
from autotune.reports.markup import text as _text
from autotune.reports.model import Compared, Report, Side

_FACTS = ("hardware", "versions", "revision", "data", "created")


def render(report: Report) -> str:
    """The answer in a sentence, the baseline next to the best, precisions, and where that comes from."""
    answer = report.answer
    blocks = [
        [f"## autotune: {_text(report.session)}"],
        *([[_text(answer.promise)]] if answer.promise else []),
        [_text(answer.sentence)],
        _sides(report),
    ]
    blocks += [[f"- {_text(line)}" for line in (*answer.cautions, *answer.outside)]]
    blocks += [[_text(report.which_precision.sentence)] if report.which_precision else [], _models(report)]
    blocks += [*_own(report), *_elsewhere(report)]
    blocks += [_code(answer.commands), [_provenance(report)]]
    return "\n\n".join("\n".join(lines) for lines in blocks if lines) + "\n"


def _sides(report: Report) -> list[str]:
    """A row for each figure, the baseline's next to the best's."""
    baseline, best = report.answer.baseline, report.answer.best
    if baseline is None or best is None:
        return []
    sides = [baseline] if best.trial == baseline.trial else [baseline, best]
    rows = [_figures(side, report) for side in sides]
    names = [name for name in rows[0] if any(row[name] != "-" for row in rows)]
    headings = ["baseline", f"trial {best.trial}"][: len(sides)]
    return _table(["", *headings], [[name, *(row[name] for row in rows)] for name in names])


def _figures(side: Side, report: Report) -> dict[str, str]:
    """The cells of a column by the names of their rows, as text that is not escaped yet."""
    peak = words.peak(side.peak_memory_bytes, side.memory_share, is_rising=side.memory_is_rising)
    whole = "whole training" + (", evaluations included" if report.answer.evaluations_counted else "")
    return {
        "settings": side.knobs,
        f"{report.unit}/s": _figure(side.throughput, ".1f"),
        report.quality + (" (lower is better)" if report.minimize else ""): _figure(side.quality, ".4f"),
        "peak memory": "-" if side.peak_memory_bytes is None else peak,
        "GPU": "-" if side.gpu_percent is None else f"{side.gpu_percent:.0f}%",
        "HFU": "-" if side.mfu is None else f"{side.mfu:.0%}",
        f"joules per {words.each(report)}": "-"
        if side.joules_per_sample is None
        else f"{side.joules_per_sample:.3g}",
        "evaluations, about": "-" if side.evaluation_share is None else f"{side.evaluation_share:.0%}",
        whole: _duration(side),
        **_costs(side.cost, report.answer.prices),
    }


def _duration(side: Side) -> str:
    """`1h 38m (1h 34m to 1h 43m)`, that of the whole training."""
    if side.full_training_s is None:
        return "-"
    text, hours = units.format_seconds(side.full_training_s), side.cost.hours if side.cost else None
    if hours is None or hours.low is None or hours.high is None:
        return text
    low, high = (units.format_seconds(end * 3600) for end in (hours.low, hours.high))
    return f"{text} ({low} to {high})"


def _costs(cost: Cost | None, prices: Prices | None) -> dict[str, str]:
    """What the whole training takes besides time."""
    currency = f" in {prices.currency}" if prices and prices.currency else ""
    return {
        "kWh of the GPU, about": _figure(cost.kwh if cost else None, ".3g"),
        f"cost{currency}, about": _figure(cost.money if cost else None, ".4g"),
    }


def _models(report: Report) -> list[str]:
    """A row for each model that was compared, a column for each score to show that one of them has."""
    models = [m for m in report.compared if m.scores]
    names = words.ordered(on_test(report.quality), *(m.scores for m in models))
    if not models:
        return []
    head = ["model", f"{report.unit}/s", *names, *(["reports/s"] if report.writes_reports else [])]
    return _table(head, [_model(m, names)[: len(head)] for m in models])


def _model(model: Compared, names: Sequence[str]) -> list[str]:
    scores = [_number(model.scores.get(name), ".4f") for name in names]
    return [model.label, _figure(model.throughput, ".1f"), *scores, _number(model.reports_per_s, ".1f")]


def _elsewhere(report: Report) -> list[list[str]]:
    """What fits into another memory."""
    if report.elsewhere is None:
        return []
    found, notes = elsewhere.table(report.elsewhere), elsewhere.notes(report.elsewhere)
    return [
        [f"{elsewhere.TITLE}:"],
        _table(found.head, found.rows),
        [f"- {_text(note)}" for note in notes],
    ]


def _own(report: Report) -> list[list[str]]:
    """Returns the workload's own tables, each with its title for a first heading."""
    tables = report.own.tables if report.own else ()
    return [_table([table.title, *table.head[1:]], table.rows) for table in tables if not table.is_detail]


def _provenance(report: Report) -> str:
    """Where the figures come from, in a line."""
    facts = [f"{name} {report.provenance[name]}" for name in _FACTS if report.provenance.get(name)]
    return _text("; ".join([*facts, f"{report.samples_per_trial} {report.unit} per trial"]))


def _code(commands: Sequence[str]) -> list[str]:
    """Commands in a block that nothing in them can close."""
    lines = [printable(command) for command in commands]
    fence = max(["```", *(f"{run}`" for line in lines for run in re.findall("`+", line))], key=len)
    return [f"{fence}sh", *lines, fence] if lines else []


def _figure(figure: Figure | None, form: str) -> str:
    """`61.2 (60.1 to 62.3)`."""
    if figure is None:
        return "-"
    if figure.low is None or figure.high is None:
        return format(figure.value, form)
    return f"{figure.value:{form}} ({figure.low:{form}} to {figure.high:{form}})"


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
