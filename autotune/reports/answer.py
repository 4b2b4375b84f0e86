"""The answer of a report as lines of text: baseline, recommended, and how many times as much. Pure."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from autotune.core import units
from autotune.judging.costs import Prices
from autotune.judging.estimates import Figure
from autotune.reports import marks, words
from autotune.reports.marks import Mark
from autotune.reports.model import Report, Side

VERDICTS = {  # a symbol, so that colour is not all that tells them apart
    "confirmed": ("✓", "Confirmed"),
    "unconfirmed": ("≈", "Not confirmed"),
    "baseline": ("=", "The baseline stays"),
    "none": ("\N{EN DASH}", "No result"),
}


@dataclass(frozen=True)
class Cell:
    """A figure as text, and its note in small print: its interval, or its share."""

    text: str = words.NOTHING
    detail: str = ""


@dataclass(frozen=True)
class Line:
    """A kind of figure, over what it was taken, and its cells."""

    name: str
    over: str
    baseline: Cell
    best: Cell
    factor: Cell


@dataclass(frozen=True)
class Setting:
    """A setting of the baseline and of what is recommended."""

    name: str
    before: str
    after: str

    @property
    def is_changed(self) -> bool:
        return self.before != self.after


_WHOLE, _ELECTRICITY, _COST = "Full training", "Electricity", "Cost"
_OF_WHOLE = {_WHOLE, _ELECTRICITY, _COST}
_ONLY_WHERE_KNOWN = {"Evaluations", "Pauses", _ELECTRICITY}  # not listed as unknown where they are missing


@dataclass(frozen=True)
class _Kind:
    name: str
    over: str
    value: Callable[[Side], float | None]
    cell: Callable[[Side], Cell]


def is_better(report: Report) -> bool:
    """Whether something other than the baseline seems better."""
    baseline, best = report.answer.baseline, report.answer.best
    return best is not None and (baseline is None or best.trial != baseline.trial)


def is_recommended(report: Report) -> bool:
    """Whether that may be run: nothing that awaits its confirmation."""
    return is_better(report) and not report.answer.is_open


def sides(report: Report) -> list[tuple[Mark, Side]]:
    """What the answer is about: the baseline, and the recommended trial where that is another."""
    baseline, best = report.answer.baseline, report.answer.best if is_recommended(report) else None
    return [(mark, side) for mark, side in ((marks.BASELINE, baseline), (marks.WINNER, best)) if side]


def lines(report: Report) -> list[Line]:
    """The figures that are known of either side."""
    baseline, best = report.answer.baseline, report.answer.best
    # The time to a quality is not a ratio of speeds: sooner there need not mean sooner in a whole training.
    hides_whole = report.target is not None and report.answer.prices is None
    gain = report.answer.speed
    kinds = [kind for kind in _kinds(report) if not (hides_whole and kind.name in _OF_WHOLE)]
    found = [_line(kind, baseline, best, gain) for kind in kinds]
    known = [line for line in found if {line.baseline, line.best} != {Cell()}]
    return [*known[:1], *_samples(report), *known[1:]]


def _samples(report: Report) -> list[Line]:
    """The part of the gain that is not throughput: fewer samples. Both factors make up the gain."""
    answer = report.answer
    if answer.factor is None or answer.speed is None:
        return []
    fewer = answer.factor.value / answer.speed.value
    if report.target is None and math.isclose(fewer, 1.0, rel_tol=0.005):
        return []
    of = "of the training" if report.target is None else f"to {words.limit(report)}"
    factor = Cell(words.factor(fewer), "of the gain")
    return [Line(report.unit.capitalize(), of, Cell(), Cell(), factor)]


def unknown(report: Report) -> list[str]:
    """The figures that could be measured on neither side."""
    known = {line.name for line in lines(report)} | _ONLY_WHERE_KNOWN
    return [kind.name for kind in _kinds(report) if kind.name not in known]


def settings(report: Report) -> list[Setting]:
    """Every setting on both sides, those that change first."""
    baseline, best = report.answer.baseline, report.answer.best
    before, after = baseline.config if baseline else {}, best.config if best else {}
    found = [
        Setting(
            name,
            words.setting(before[name]) if name in before else words.NOTHING,
            words.setting(after[name]) if name in after else words.NOTHING,
        )
        for name in dict.fromkeys([*before, *after])
    ]
    return sorted(found, key=lambda setting: not setting.is_changed)


def _kinds(report: Report) -> tuple[_Kind, ...]:
    known = [side for side in (report.answer.baseline, report.answer.best) if side]
    seeds = words.plural(max((side.seeds for side in known), default=0), "seed")
    limit = report.memory_limit_bytes
    return (
        _Kind(
            "Throughput",
            f"{report.unit} per second" + (", evaluations included" if report.speed == "wall" else ""),
            lambda s: s.throughput.value if s.throughput else None,
            lambda s: _measured(words.throughput(s.throughput)),
        ),
        _Kind(
            words.metric(report.quality),
            f"mean of {seeds}" + ("; lower is better" if report.minimize else ""),
            lambda s: s.quality.value if s.quality else None,
            lambda s: _measured(words.quality(s.quality)),
        ),
        _Kind(
            "Peak memory",
            f"of {words.memory(limit)}" if limit else "",
            lambda s: s.peak_memory_bytes,
            _peak,
        ),
        _Kind("GPU utilisation", "", lambda s: s.gpu_percent, lambda s: Cell(words.percent(s.gpu_percent))),
        _Kind("HFU", "of the device's peak FLOP/s", lambda s: s.mfu, lambda s: Cell(words.share(s.mfu))),
        _Kind(
            "CPU", "100% is one core", lambda s: s.cpu_percent, lambda s: Cell(words.percent(s.cpu_percent))
        ),
        _Kind(
            "Energy",
            f"per {words.each(report)}",
            lambda s: s.joules_per_sample,
            lambda s: Cell(words.energy(s.joules_per_sample)),
        ),
        _Kind(
            "Evaluations",
            "of the full training, about",
            lambda s: s.evaluation_share,
            lambda s: Cell(words.share(s.evaluation_share)),
        ),
        _Kind(
            "Pauses",
            "long steps at regular distances, of the full training, about",
            lambda s: s.pause_share or None,
            lambda s: Cell(words.share(s.pause_share or None)),
        ),
        _Kind(
            _WHOLE,
            _of_whole(report),
            lambda s: s.full_training_s,
            lambda s: _whole(s.full_training_s, s.cost.hours if s.cost else None),
        ),
        _Kind(
            _ELECTRICITY,
            "of the GPU, over the full training, about",
            lambda s: s.cost.kwh.value if s.cost and s.cost.kwh else None,
            lambda s: _with_interval(s.cost.kwh if s.cost else None, words.kilowatt_hours),
        ),
        *_priced(report.answer.prices),
    )


def _priced(prices: Prices | None) -> tuple[_Kind, ...]:
    """What the full training costs, where prices were given."""
    if prices is None:
        return ()
    of = {"hour": prices.per_hour, "kWh": prices.per_kwh}
    said = [f"{words.money(price, prices.currency)} per {name}" for name, price in of.items() if price]
    return (
        _Kind(
            _COST,
            f"of the full training, about; {', '.join(said) or 'nothing is to be paid'}",
            lambda s: s.cost.money.value if s.cost and s.cost.money else None,
            lambda s: _with_interval(
                s.cost.money if s.cost else None, lambda value: words.money(value, prices.currency)
            ),
        ),
    )


def _whole(value_s: float | None, hours: Figure | None) -> Cell:
    """The duration, half of its interval in small print."""
    half = words.half_width(hours) if hours else None
    return Cell(words.duration(value_s), "" if half is None else f"± {words.duration(half * 3600)}")


def _with_interval(figure: Figure | None, said: Callable[[float | None], str]) -> Cell:
    half = words.half_width(figure) if figure else None
    return Cell(said(figure.value if figure else None), "" if half is None else f"± {said(half)}")


def _of_whole(report: Report) -> str:
    """How long the full training is, and what of it is projected."""
    samples = report.answer.full_training_samples
    if samples is None:
        return ""
    counted = ", evaluations included" if report.answer.evaluations_counted else ""
    return f"{words.count(samples)} {report.unit}{counted}"


def _peak(side: Side) -> Cell:
    """The peak, with its share of the limit in small print."""
    part = words.share(side.memory_share) if side.memory_share else ""
    return Cell(words.peak(side.peak_memory_bytes, is_rising=side.memory_is_rising), part)


def _measured(text: str) -> Cell:
    """`61.2 ± 0.8`, the interval in small print."""
    value, sign, half = text.partition(" ± ")
    return Cell(value, f"± {half}" if sign else "")


def _line(kind: _Kind, baseline: Side | None, best: Side | None, gain: Figure | None) -> Line:
    ours, theirs = (kind.cell(side) if side else Cell() for side in (best, baseline))
    if kind.name == "Throughput" and gain is not None:
        return Line(
            kind.name, kind.over, theirs, ours, Cell(words.factor(gain.value), words.factor_interval(gain))
        )
    before, after = (units.number(kind.value(side)) if side else None for side in (baseline, best))
    # For a value below 0, such as a loss with its sign turned, a factor does not say which is more.
    ratio = after / before if before and before > 0 and after is not None else None
    return Line(kind.name, kind.over, theirs, ours, Cell(words.factor(ratio)))
