"""The answer of a report as text: baseline, recommendation, and the factor between them. Pure."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from autotune.core import units
from autotune.display import words
from autotune.display.words import FigureForm
from autotune.judging.measurement.estimates import Figure
from autotune.reports import marks
from autotune.reports.marks import Mark
from autotune.reports.model import SessionReport, Side

VERDICTS = {  # with a symbol, so that they differ by more than colour
    "confirmed": ("✓", "Confirmed"),
    "unconfirmed": ("≈", "Not confirmed"),
    "baseline": ("=", "The baseline stays"),
    "none": ("\N{EN DASH}", "No result"),
}


@dataclass(frozen=True)
class Cell:
    """A figure as text, with its interval or share in small print."""

    text: str = words.NOTHING
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.text} {self.detail}".rstrip()


@dataclass(frozen=True)
class ComparedFigure:
    """A row of the answer: one figure of both sides."""

    name: str
    over: str  # basis of the figure: unit, seeds, or part of the training
    baseline: Cell
    best: Cell
    factor: Cell


@dataclass(frozen=True)
class Setting:
    """A setting in the baseline and in the recommendation."""

    name: str
    before: str
    after: str

    @property
    def is_changed(self) -> bool:
        return self.before != self.after


_PEAK, _WHOLE, _RUN = "Peak memory", "Full training", "Run"
_ELECTRICITY, _COST = "Electricity", "Cost"
_OF_WHOLE = {_WHOLE, _ELECTRICITY, _COST}
_OPTIONAL = {"Evaluations", "Pauses", _RUN, _ELECTRICITY}  # not listed as unknown if missing


def is_better(report: SessionReport) -> bool:
    """Returns True if a trial seems better than the baseline, confirmed or not."""
    baseline, best = report.answer.baseline, report.answer.best
    return best is not None and (baseline is None or best.trial != baseline.trial)


def is_recommended(report: SessionReport) -> bool:
    """Returns True if a trial better than the baseline is recommended, and not still to be confirmed."""
    return is_better(report) and not report.answer.is_open


def sides(report: SessionReport) -> list[tuple[Mark, Side]]:
    """Returns the baseline, and the recommended trial if it is not the baseline."""
    baseline, best = report.answer.baseline, report.answer.best if is_recommended(report) else None
    return [(mark, side) for mark, side in ((marks.BASELINE, baseline), (marks.WINNER, best)) if side]


def lines(report: SessionReport) -> list[ComparedFigure]:
    """Returns the figures that are known for at least one side."""
    # Reaching a target sooner says nothing about the time of a whole training.
    hides_whole = report.target is not None and report.answer.prices is None
    every = [line for line in _every(report) if not (hides_whole and line.name in _OF_WHOLE)]
    known = [line for line in every if {line.baseline, line.best} != {Cell()}]
    return [*known[:1], *fewer_samples(report), *known[1:]]


def fewer_samples(report: SessionReport) -> list[ComparedFigure]:
    """Returns the factor gained by fewer samples; multiplied by the throughput's, it is the whole gain."""
    gain, speed = report.answer.factor, report.answer.speed
    if gain is None or speed is None:
        return []
    fewer = gain.value / speed.value
    if report.target is None and math.isclose(fewer, 1.0, rel_tol=0.005):
        return []
    over = "of the training" if report.target is None else f"to {report.limit}"
    sides = (report.answer.baseline, report.answer.best)
    theirs, ours = (Cell(words.count(side.planned if side else None)) for side in sides)
    factor = Cell(words.factor(fewer), "of the gain")
    return [ComparedFigure(report.unit.capitalize(), over, theirs, ours, factor)]


def unknown(report: SessionReport) -> list[str]:
    """Returns the names of figures that were measured on neither side."""
    known = {line.name for line in lines(report)} | _OPTIONAL
    return [line.name for line in _every(report) if line.name not in known]


def settings(report: SessionReport) -> list[Setting]:
    """Returns every setting of both sides, changed ones first."""
    baseline, best = report.answer.baseline, report.answer.best
    before, after = baseline.config if baseline else {}, best.config if best else {}
    rows = []
    for name in dict.fromkeys([*before, *after]):
        old, new = (words.setting(side[name]) if name in side else words.NOTHING for side in (before, after))
        rows.append(Setting(name, old, new))
    return sorted(rows, key=lambda setting: not setting.is_changed)


def _every(report: SessionReport) -> list[ComparedFigure]:
    """Returns all figures, unknown ones too."""
    result, limit = report.answer, report.memory_limit_bytes
    seeds = max((side.seeds for side in (result.baseline, result.best) if side), default=0)
    score = f"mean of {words.plural(seeds, 'seed')}" + ("; lower is better" if report.minimize else "")
    speed = f"{report.unit} per second" + (", evaluations included" if report.speed == "wall" else "")
    length = ""
    if result.full_training_samples is not None:
        counted = ", evaluations included" if result.evaluations_counted else ""
        length = f"{words.count(result.full_training_samples)} {report.unit}{counted}"
    pauses = "long steps at regular distances, of the full training, about"
    electricity = "of the GPU, over the full training, about"
    line = partial(_line, report)
    lines = [
        line("Throughput", speed, lambda s: s.throughput, words.rate),
        line(words.metric(report.quality), score, lambda s: s.quality, words.score),
        line(
            _PEAK, f"of {words.memory(limit)}" if limit else "", lambda s: s.peak_memory_bytes, words.memory
        ),
        line("GPU utilisation", "", lambda s: s.gpu_percent, words.percent),
        line("HFU", "of the device's peak FLOP/s", lambda s: s.mfu, words.share),
        line("CPU", "100% is one core", lambda s: s.cpu_percent, words.percent),
        line("Energy", f"per {report.each}", lambda s: s.joules_per_sample, words.energy),
        line("Evaluations", "of the full training, about", lambda s: s.evaluation_share, words.share),
        line("Pauses", pauses, lambda s: s.pause_share or None, words.share),
        line(
            _WHOLE,
            length,
            lambda s: s.cost.hours.scaled(units.S_PER_HOUR) if s.cost else s.full_training_s,
            words.duration,
        ),
        line(_RUN, "from start to end, about", lambda s: s.run_s, words.duration),
        line(_ELECTRICITY, electricity, lambda s: s.cost.kwh if s.cost else None, words.kilowatt_hours),
    ]
    if prices := result.prices:
        form, per = words.money(prices.currency), {"hour": prices.per_hour, "kWh": prices.per_kwh}
        each = ", ".join(f"{form(price)} per {name}" for name, price in per.items() if price)
        over = f"of the full training, about; {each or 'nothing is to be paid'}"
        lines.append(line(_COST, over, lambda s: s.cost.money if s.cost else None, form))
    return lines


def _line(
    report: SessionReport,
    name: str,
    over: str,
    figure: Callable[[Side], Figure | float | None],
    form: FigureForm,
) -> ComparedFigure:
    cells, values = [], []
    for side in (report.answer.baseline, report.answer.best):
        value = figure(side) if side else None
        values.append(units.number(value.value if isinstance(value, Figure) else value))
        text, sign, half = form(value).partition(" ± ")
        detail = f"± {half}" if sign else ""
        if name == _PEAK and side:
            text = words.peak(side.peak_memory_bytes, is_rising=side.memory_is_rising)
            detail = f"({words.share(side.memory_share)})" if side.memory_share else ""
        cells.append(Cell(text, detail))
    before, after = values
    # For values below 0, such as a negated loss, a factor does not say which is larger.
    factor = Cell(words.factor(after / before if before and before > 0 and after is not None else None))
    if name == "Throughput" and (gain := report.answer.speed) is not None:
        interval = words.factor.interval(gain)
        factor = Cell(words.factor(gain), f"({interval})" if interval else "")
    baseline, best = cells
    return ComparedFigure(name, over, baseline, best, factor)
