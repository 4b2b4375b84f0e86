"""The tables of a report that belong to no plot, as text. Pure functions of a report."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from autotune.compare.results import name_on_test
from autotune.display import view, words
from autotune.display.rows import TrialRow
from autotune.reports import answer, marks
from autotune.reports.marks import Mark
from autotune.reports.model import Compared, SessionReport
from autotune.reports.plot import Table

_MOST_REASONS = 3
_LABELS = {"cpus": "CPUs", "revision": "code revision", "data": "data fingerprint", "command": "command line"}


def trial_counts(report: SessionReport) -> str:
    """Returns `48 trials; 1 speed comparison, 9 runs with another seed`."""
    kinds = [row.kind for row in report.trials]
    searched = sum(kind in {"baseline", "winner", "trial"} for kind in kinds)
    return "; ".join(filter(None, [words.plural(searched, "trial"), view.count_others(kinds)]))


def trials(report: SessionReport) -> list[tuple[Mark, TrialRow, tuple[str, ...]]]:
    """Returns every trial with its mark and the table cells that follow its number and outcome."""
    rows: list[tuple[Mark, TrialRow, tuple[str, ...]]] = []
    for row in report.trials:
        figures = words.rate(row.throughput), words.factor(row.factor), words.score(row.quality)
        rows.append((marks.trial(row), row, (*figures, row.peak, words.duration(row.seconds))))
    return rows


def remarks(row: TrialRow) -> str:
    by_text = {
        f"trial {row.repeats}'s settings with another seed; figures of this run alone": row.repeats
        is not None,
        "ablation run": row.kind == "ablation",
        "on the Pareto front": row.on_front,
        "other trials ran at the same time": row.shared,
        "other programs used the machine": row.disturbed,
        "thermally throttled": row.throttled,
    }
    return ", ".join(text for text, holds in by_text.items() if holds)


def outcomes(report: SessionReport) -> Table:
    """Returns how many trials ended in each way, why, and the time that they took."""
    rows = []
    for mark, ended in reversed(marks.grouped(report.trials, marks.outcome)):
        took = words.duration(sum(r.seconds for r in ended))
        rows.append((mark.label, str(len(ended)), took, _reasons(ended)))
    head = ("outcome", "trials", "took", "reasons")
    return Table(head, tuple(rows), numeric=(1, 2))


def _reasons(rows: Iterable[TrialRow]) -> str:
    """Returns the most frequent reasons; those that differ only in their figures are counted as one."""
    groups: dict[str, list[str]] = {}
    for reason in (row.why for row in rows if row.reason):
        groups.setdefault(words.without_figures(reason), []).append(reason)
    groups_by_size = sorted(groups.items(), key=lambda group: len(group[1]), reverse=True)
    texts = [
        (common if len(set(same)) > 1 else same[0]) + (f" ({len(same)} times)" if len(same) > 1 else "")
        for common, same in groups_by_size[:_MOST_REASONS]
    ]
    if len(groups_by_size) > len(texts):
        texts.append(f"{len(groups_by_size) - len(texts)} other reasons")
    return "; ".join(texts)


def skipped(report: SessionReport) -> Table:
    rows = tuple((s.reason, str(s.count), s.example) for s in report.skipped)
    return Table(("reason", "suggestions", "for example"), rows, numeric=(1,))


def scores(report: SessionReport) -> Table:
    """Returns a row per compared model: its scores, and speed and memory in training and writing reports."""
    models = report.compared
    scores_of = {each.label: each.scores for each in models}
    names = words.score_names(name_on_test(report.quality), *scores_of.values())
    if not names:  # none on the test split: the quality at the end of the training
        names = [report.quality]
        scores_of = {each.label: {names[0]: each.curve[-1].quality} for each in models if each.curve}
    columns = [("seeds", [str(each.seeds) for each in models])] if has_seeds(report) else []
    for name in names:
        found = [scores_of.get(each.label, {}).get(name) for each in models]
        columns.append((words.metric(name), list(map(words.score, found))))
    if report.writes_reports:
        columns.append(("reports/s", [words.rate(each.reports_per_s) for each in models]))
        columns.append(("memory for reports", [words.memory(each.writing_peak_bytes) for each in models]))
    columns.append((f"training {report.unit}/s", [words.rate(each.throughput) for each in models]))
    peaks = [words.peak(m.training_peak_bytes, is_rising=m.training_memory_is_rising) for m in models]
    columns.append(("memory for training", peaks))
    return _by_model([each.label for each in models], columns)


def trainings(models: Sequence[Compared]) -> Table | None:
    """Returns figures of the compared models' trainings; None if none is known."""
    trained = [each for each in models if each.status == "completed"]
    columns = [
        ("final train loss", [words.score(each.steps.final_loss) for each in trained]),
        ("against fp32", [words.change(each.beside_fp32) for each in trained]),
        ("bad steps", [words.count(each.steps.bad) for each in trained]),
        ("overflows", [words.count(each.steps.overflows) for each in trained]),
        ("parameters", [words.count(each.parameters) for each in trained]),
        ("checkpoints", [words.memory(each.checkpoint_bytes) for each in trained]),
    ]
    known = [(name, cells) for name, cells in columns if set(cells) - {words.NOTHING}]
    return _by_model([each.label for each in trained], known) if known else None


def has_seeds(report: SessionReport) -> bool:
    """Returns True if figures of compared models are means over several seeds."""
    return any(each.seeds > 1 for each in report.compared)


def search_scores(report: SessionReport) -> Table | None:
    """Returns the scores that the search measured besides the quality; None if there are none."""
    sides = [(mark.label, side.scores) for mark, side in answer.sides(report) if side.scores]
    names = words.score_names(report.quality, *(values for _, values in sides))
    columns = [(words.metric(name), [words.score(found.get(name)) for _, found in sides]) for name in names]
    return _by_model([label for label, _ in sides], columns) if len(names) > 1 else None


def _by_model(labels: Sequence[str], columns: Sequence[tuple[str, Sequence[str]]]) -> Table:
    """Returns a table of columns by their headings, which may be equal."""
    head = ("model", *(heading for heading, _ in columns))
    rows = tuple(zip(labels, *(cells for _, cells in columns), strict=True))
    return Table(head, rows, numeric=tuple(range(1, len(head))))


def facts(report: SessionReport) -> list[tuple[str, list[str]]]:
    """Returns the goal of the search, the origin of the figures, and cautions, each under its heading."""
    limit = "" if report.memory_limit_bytes is None else f" of {words.memory(report.memory_limit_bytes)}"
    name, goal = words.metric(report.quality), f"the highest throughput with {report.no_worse}"
    if report.target is not None:
        goal = f"the fewest seconds of training to {name} {report.target:g}"
    elif report.select == "pareto":
        goal = f"the best trade-offs between throughput and {name}, and of these {goal}"
    parts = [
        ("goal", [goal]),
        ("trials planned", [words.count(report.planned)]),
        (f"{report.unit} per trial", [words.count(report.samples_per_trial)]),
        ("constraints", [f"{name} {text}" for name, text in report.constraints.items()]),
        ("memory that may be used", [f"{words.share(report.memory_fraction)}{limit}"]),
        *((_label(name), _value_lines(value)) for name, value in report.provenance.items()),
        ("warnings", list(report.answer.cautions)),
    ]
    return [(name, texts) for name, texts in parts if texts]


def _label(name: str) -> str:
    return _LABELS.get(name, name.replace("_", " "))


def _value_lines(value: Any) -> list[str]:
    if value is None or value == "":
        return []
    if isinstance(value, Mapping):
        items = ((_label(str(name)), ", ".join(_value_lines(part))) for name, part in value.items())
        return [f"{name}: {text}" for name, text in items if text]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [", ".join(text for part in value for text in _value_lines(part))]
    return [words.setting(value)]
