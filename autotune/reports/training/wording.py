"""A training's figures as text, for the page and for Markdown. Pure."""

from contextlib import suppress
from datetime import UTC, datetime

from autotune.core import units
from autotune.display import view, words
from autotune.display.snapshot import ENDED, RUNNING
from autotune.display.words import FigureForm
from autotune.judging.accounts.promise import PromiseAnswer
from autotune.judging.measurement import estimates
from autotune.reports.plot import Table
from autotune.reports.training.model import Growth, TrainingReport
from autotune.storage.records import is_score
from autotune.training import messages
from autotune.training.events import Kind

# Symbol, so that they differ by more than colour; words; CSS class.
VERDICTS = {
    PromiseAnswer.HELD: ("✓", "As promised", "confirmed"),
    PromiseAnswer.BROKEN: ("✗", "Not as promised", "none"),
    PromiseAnswer.UNDECIDED: ("≈", "Not decided yet", "unconfirmed"),
}
_NOTHING_PROMISED = ("\N{EN DASH}", "Nothing to compare with", "unconfirmed")


def verdict(report: TrainingReport) -> tuple[str, str, str]:
    """Returns symbol, words and CSS class of the verdict on the promise."""
    return VERDICTS[report.promised.answer] if report.promised else _NOTHING_PROMISED


def sentence(report: TrainingReport) -> str:
    """Compares the training so far with the figures that its session measured."""
    promised = report.promised
    if promised is None:
        return "No search has measured these settings, so there is nothing to compare this training with."
    figures = f"trial {promised.trial} of session {promised.session}"
    if all(check.found is None for check in promised.kept):
        return f"There is nothing yet to compare with {figures}."
    answer = {
        PromiseAnswer.HELD: f"as good as {figures}.",
        PromiseAnswer.BROKEN: f"not as good as {figures}.",
        PromiseAnswer.UNDECIDED: f"not clearly as good as {figures}, and not clearly worse.",
    }[promised.answer]
    return f"{'The' if report.state == ENDED else 'So far the'} training is {answer}"


def terminal_lines(report: TrainingReport) -> list[str]:
    """Returns the verdict for a terminal, with possible reasons; no lines if nothing was promised."""
    promised = report.promised
    if promised is None:
        return []
    verdict = VERDICTS[promised.answer][1]
    return [
        f"{verdict}, compared with trial {promised.trial} of session {promised.session}",
        *(f"- {check.what} {check.answer}: {check.text}" for check in promised.kept),
        *(f"- during the training: {text}" for text in observations(report)),
    ]


def end(report: TrainingReport) -> str:
    """Returns how the training has ended, or that it has not."""
    if report.state == RUNNING:
        return "The training is running."
    if report.outcome is None:
        last = f" The last event: {report.events[-1].text}" if report.events else ""
        return f"The training has not ended.{last}"
    why = f": {report.outcome.reason}" if report.outcome.reason else ""
    return f"{str(report.outcome).capitalize()} after {done(report)}{why}."


def done(report: TrainingReport) -> str:
    """Returns e.g. `12,000 of 20,000 samples (60%)`."""
    samples, planned = report.measured.samples, report.planned
    share = f" ({words.share(samples / planned)})" if planned else ""
    return messages.done(samples, planned, report.metric.unit) + share


def promise_table(report: TrainingReport) -> Table | None:
    """Returns promised figures next to measured ones; None if nothing was promised."""
    kinds: dict[str, tuple[str, FigureForm]] = {
        "speed": (f"{report.metric.unit}/s", words.rate),
        "quality": (words.metric(report.metric.name), words.score),
        "memory": ("memory", words.memory),
    }
    rows = []
    for check in report.promised.kept if report.promised else ():
        name, form = kinds[check.what]
        rows.append((name, form(check.promised), form(check.found), check.answer, check.text))
    head = ("figure", "promised", "measured", "verdict", "details")
    return Table(head, tuple(rows), numeric=(1, 2)) if rows else None


def observations(report: TrainingReport) -> list[str]:
    """Returns observations that may explain a broken promise, or foresee a full memory."""
    happened = [event.text for event in report.events if event.kind in {Kind.DRIFT, Kind.LEAK}]
    return [*messages.contention(report.measured), *happened]


def figures(report: TrainingReport) -> list[tuple[str, str]]:
    """Returns the known figures of the training, by name."""
    measured, speed, unit = report.measured, report.measured.throughput, report.metric.unit
    evaluations = f"evaluations {'included' if report.metric.counts_evaluations else 'left out'}"
    values = {
        "progress": done(report),
        "time": _time(report),
        f"{unit}/s, {evaluations}": words.rate(estimates.throughput_figure(speed)),
        "optimizer steps/s, evaluations left out": words.rate(speed.steps_per_s if speed else None),
        words.metric(report.metric.name): _quality(report),
        "peak memory": view.memory(measured),
        **{f"use of {one.memory}": _growth(one, report) for one in report.growth},
        "trained parameters": words.count(measured.trained_parameters),
        "size of work/, with its checkpoints": words.memory(report.work_bytes),
        "evaluations": _evaluations(report),
        "parts of a step": words.phase_shares(measured.step_shares),
        "HFU, of the device's peak FLOP/s": words.share(measured.mfu),
        "repeated after faults": f"about {words.count(report.repeated)} {unit}" * bool(report.repeated),
    }
    return [(name, text) for name, text in values.items() if text not in {"", words.NOTHING}]


def _time(report: TrainingReport) -> str:
    trained, attempts = report.measured.samples, f" in {report.attempts} attempts" * (report.attempts > 1)
    spent, left = f"{words.duration(report.seconds)}{attempts}", (report.planned or 0) - trained
    if report.outcome is not None or left <= 0 or not trained:
        return spent
    return f"{spent}, about {words.duration(report.seconds / trained * left)} left"


def _quality(report: TrainingReport) -> str:
    """Returns the last quality, and the best if it differs."""
    points = report.curves.quality
    if not points:
        return words.NOTHING
    best = max(points, key=lambda point: report.metric.turned(point.value))
    if best.value == points[-1].value:
        return words.score(best.value)
    at = f"{words.score(best.value)} after {words.count(best.samples)} {report.metric.unit}"
    return f"{words.score(points[-1].value)}, the best {at}"


def _growth(one: Growth, report: TrainingReport) -> str:
    growth, unit = words.growth(one.slope, report.metric.unit), report.metric.unit
    if one.slope.low <= 0:
        return "does not certainly grow"
    if one.full is None:
        return f"grows by {growth}" + ", but ever more slowly" * one.slope.is_slowing
    return f"grows by {growth}; at this rate full after {words.until_full(one.full, unit, None)}"


def _evaluations(report: TrainingReport) -> str:
    outside = report.measured.outside
    if not outside.evaluations or outside.evaluation_s is None or not report.seconds:
        return words.NOTHING
    share = min(1.0, outside.evaluations * outside.evaluation_s / report.seconds)
    return f"{outside.evaluations} of {words.duration(outside.evaluation_s)} each, {share:.0%} of the time"


def scores(report: TrainingReport) -> list[tuple[str, str]]:
    """Returns the scores of the last evaluation."""
    values = report.measured.scores
    return [(words.metric(name), words.score(values[name])) for name in values if is_score(name)]


def event_table(report: TrainingReport) -> Table:
    """Returns the events, one per row; times are in UTC."""
    rows = tuple(
        (moment(e.at), words.duration(e.seconds), words.count(e.samples), e.kind, e.text)
        for e in report.events
    )
    return Table(("when, UTC", "time", report.metric.unit, "what", "details"), rows, numeric=(1, 2))


def settings(report: TrainingReport) -> Table:
    """Returns every setting, and those that recovery has changed."""
    changed = "changed by the training"
    rows = tuple(
        (name, words.setting(value), changed if name in report.changes else "")
        for name, value in report.settings.items()
    )
    return Table(("setting", "value", ""), rows, numeric=(1,))


def moment(at: float | None) -> str:
    """Returns e.g. `2026-03-01 17:05:09`, in UTC; a dash if unknown, or no date as in a damaged file."""
    known = units.number(at)
    with suppress(ValueError, OverflowError, OSError):
        if known is not None:
            return datetime.fromtimestamp(known, UTC).strftime("%Y-%m-%d %H:%M:%S")
    return words.NOTHING
