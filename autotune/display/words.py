"""Figures as text: the same forms on the terminal, in lines and reports, and in what is exported. Pure."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from autotune.core import units
from autotune.core.measurement import Slope
from autotune.judging.measurement.estimates import Figure

NOTHING = "-"  # an unknown figure
_METRICS = {
    **{f"bleu_{n}": f"BLEU-{n}" for n in range(1, 5)},
    "meteor": "METEOR",
    "rouge_l": "ROUGE-L",
    "cider": "CIDEr",
}
_FIGURE = re.compile(r"\d+([.,]\d+)*( [KMGT]iB)?")


@dataclass(frozen=True)
class FigureForm:
    """Writes figures of one kind: calling it returns `61.2 ± 0.8`, or `61.2` if there is no interval."""

    spec: str | Callable[[float], str]  # for `format`, or a function that formats the value
    unit: str = ""
    below_one: str = ""  # the `spec` of figures below one, if they need more digits
    thousands: str = ""  # the `spec` of figures from 1,000 on, if they need fewer
    scale: float = 1.0
    has_interval: bool = True  # written after the value

    def __call__(self, figure: Figure | float | None) -> str:
        value = units.number(figure.value if isinstance(figure, Figure) else figure)
        if value is None:
            return NOTHING
        half = half_width(figure) if self.has_interval and isinstance(figure, Figure) else None
        return self._format(value, value) + ("" if half is None else f" ± {self._format(half, value)}")

    def interval(self, figure: Figure | None) -> str:
        """Returns `2.71x to 3.10x`; empty if there is no interval."""
        if figure is None or half_width(figure) is None:
            return ""
        return " to ".join(self._format(end or 0.0, figure.value) for end in (figure.low, figure.high))

    def _format(self, value: float, like: float) -> str:
        """Formats `value` with the digits that the value `like` would get."""
        spec, size = self.spec, abs(like * self.scale)
        if self.below_one and size < 1:
            spec = self.below_one
        elif self.thousands and size >= 1000:
            spec = self.thousands
        text = spec(value) if callable(spec) else format(value * self.scale, spec)
        return f"{text}{self.unit}"


def _duration(value_s: float) -> str:
    return f"{value_s * 1000:.3g} ms" if 0 < value_s < 1 else units.format_seconds(value_s)


rate = FigureForm(",.1f", below_one=".3f", thousands=",.0f")  # samples per second
score = FigureForm(".4f")
factor = FigureForm(".2f", "x", has_interval=False)
share = FigureForm(".0%")
change = FigureForm("+.1%")  # how much more than another figure
percent = FigureForm(".0f", "%")
milliseconds = FigureForm(".3g", scale=1000.0)
energy = FigureForm(".3g", " J")
kilowatt_hours = FigureForm(",.2f", " kWh", below_one=".3g")
count = FigureForm(",.0f")
memory = FigureForm(units.format_bytes)
duration = FigureForm(_duration)


def half_width(figure: Figure) -> float | None:
    """Returns half of a figure's interval; None if it has none."""
    low, high = units.number(figure.low), units.number(figure.high)
    return None if low is None or high is None else (high - low) / 2


def money(currency: str) -> FigureForm:
    """Returns the form of prices: `12.40 EUR`; three digits below one."""
    return FigureForm(",.2f", f" {currency}".rstrip(), below_one=".3g")


def peak(peak_bytes: float | None, share_of_limit: float | None = None, *, is_rising: bool) -> str:
    """Returns `2.4 GiB (31%)`; `at least 2.4 GiB (31%), still rising` if a longer training takes more."""
    if peak_bytes is None:
        return NOTHING
    part = "" if share_of_limit is None else f" ({share(share_of_limit)})"
    text = f"{memory(peak_bytes)}{part}"
    return f"at least {text}, still rising" if is_rising else text


def narrow_peak(peak_bytes: float | None, *, is_rising: bool) -> str:
    """Returns `2.4 GiB`, or `>2.4 GiB` if a longer training takes more: a peak in a narrow column."""
    return f"{'>' if is_rising and peak_bytes is not None else ''}{memory(peak_bytes)}"


def phase_shares(shares: Mapping[str, float]) -> str:
    """Returns `forward 61%, data 39%`: the part of a step that each phase takes; empty if unknown."""
    parts = sorted(shares.items(), key=lambda item: -item[1])
    return ", ".join(f"{name.removesuffix('_s')} {share(part)}" for name, part in parts if part > 0)


def setting(value: object) -> str:
    """Returns a setting as a configuration file writes it, a float to three digits."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:.3g}"
    return "none" if value is None else str(value)


def plural(number: int, what: str) -> str:
    """Returns `1 trial`, `2 trials`."""
    return f"{number:,} {what}" + ("" if number == 1 else "s")


def without_figures(reason: str) -> str:
    """Returns `reason` with its figures blanked, so that reasons that differ only in figures are equal."""
    return _FIGURE.sub("…", reason)


def metric(name: str) -> str:
    """Returns the name of a score as papers write it: `BLEU-4` for `bleu_4`."""
    return _METRICS.get(name, name)


def score_names(quality: str, *scores: Mapping[str, Any]) -> list[str]:
    """Returns the scores to show: papers' scores in their usual order, and the search's own `quality`."""
    return [name for name in dict.fromkeys((*_METRICS, quality)) if any(name in each for each in scores)]


def growth(slope: Slope, unit: str) -> str:
    """Returns `62 MiB (56 MiB to 69 MiB) per 1,000 samples`."""
    rate, low, high = (units.format_bytes(1000 * r) for r in (slope.per_sample, slope.low, slope.high))
    return f"{rate} ({low} to {high}) per 1,000 {unit}"


def until_full(samples: float, unit: str, epoch: int | None) -> str:
    """Returns `491,920 samples, in epoch 41`; without the epoch if its length is unknown."""
    during = f", in epoch {math.ceil(samples / epoch)}" if epoch else ""
    return f"{count(samples)} {unit}{during}"
