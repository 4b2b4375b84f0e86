"""The figures of a report as text, one way to round and to word each. Pure."""

import math
import re
from collections.abc import Mapping
from typing import Any

from autotune.core import units
from autotune.core.trial import StoppedFor
from autotune.display import view
from autotune.judging import quality as qualities
from autotune.judging.estimates import Figure
from autotune.reports.model import Report, Row

NOTHING, _TIMES = "\N{EN DASH}", "\N{MULTIPLICATION SIGN}"
_METRICS = {
    **{f"bleu_{n}": f"BLEU-{n}" for n in range(1, 5)},
    "meteor": "METEOR",
    "rouge_l": "ROUGE-L",
    "cider": "CIDEr",
}

_FIGURE = re.compile(r"\d+([.,]\d+)*( [KMGT]iB)?")
_STOPPED_FOR = {
    StoppedFor.SLOW: "another is certainly faster",
    StoppedFor.POOR: "the quality to keep is out of reach",
    StoppedFor.DOMINATED: "another is certainly faster, and its quality out of reach",
    StoppedFor.LATE: "another reached the target sooner",
}


def why(row: Row) -> str:
    """Why a trial ended as it did: in a word for all that were stopped for the same, else its own reason."""
    return _STOPPED_FOR[StoppedFor(row.stopped_for)] if row.stopped_for else row.reason


def without_figures(reason: str) -> str:
    """What several reasons have in common that differ in their figures only."""
    return _FIGURE.sub("…", reason)


def metric(name: str) -> str:
    """The name of a score as papers write it: `BLEU-4` for `bleu_4`."""
    return _METRICS.get(name, name)


def ordered(quality: str, *scores: Mapping[str, Any]) -> list[str]:
    """The scores to show of those that occur: those of papers in their order, and the search's own `quality`.

    A workload may keep others besides.
    """
    return [name for name in dict.fromkeys((*_METRICS, quality)) if any(name in each for each in scores)]


def rate(value: float | None, like: float | None = None) -> str:
    """Samples per second: `412.3`, with more digits where it, or what it is `like`, is less than one."""
    found = units.number(value)
    if found is None:
        return NOTHING
    return f"{found:,.1f}" if abs(found if like is None else like) >= 1 else f"{found:.3f}"


def half_width(figure: Figure) -> float | None:
    """Half of its interval, None where it has none."""
    low, high = units.number(figure.low), units.number(figure.high)
    return None if low is None or high is None else (high - low) / 2


def limit(report: Report) -> str:
    """Returns `95% of what the baseline gains in BLEU-4`, or the target: the worst that a winner has."""
    if report.target is not None:
        return f"the target {metric(report.quality)} {report.target:g}"
    return qualities.limit(metric(report.quality), report.keep, report.within, minimize=report.minimize)


def no_worse(report: Report) -> str:
    """Returns `at least 95% of what the baseline gains in BLEU-4`, `at most 0.02 above the ...`."""
    if report.target is None and report.within is None and not report.keep:
        return limit(report)
    is_above = report.minimize and (report.target is not None or report.within is not None)
    return f"{'at most' if is_above else 'at least'} {limit(report)}"


def axis(report: Report) -> str:
    """`BLEU-4`; `val_loss, lower is better`."""
    return metric(report.quality) + (", lower is better" if report.minimize else "")


def each(report: Report) -> str:
    """One of the unit of work: `sample`, `token`."""
    return report.unit.removesuffix("s")


def throughput(figure: Figure | None) -> str:
    """`61.2 ± 0.8`; no interval where one run could not tell."""
    if figure is None:
        return NOTHING
    half = half_width(figure)
    return rate(figure.value) + ("" if half is None else f" ± {rate(half, figure.value)}")


def quality(figure: Figure | None) -> str:
    """`0.1623 ± 0.0031`; no interval with one seed."""
    if figure is None:
        return NOTHING
    half = half_width(figure)
    return score(figure.value) + ("" if half is None else f" ± {view.quality(half)}")


def score(value: float | None) -> str:
    return NOTHING if units.number(value) is None else view.quality(value)


def factor(value: float | None) -> str:
    found = units.number(value)
    return NOTHING if found is None else f"{found:.2f}{_TIMES}"


def times(figure: Figure | None) -> str:
    """A factor without its interval."""
    return factor(figure.value if figure else None)


def factor_interval(figure: Figure | None) -> str:
    """`2.71x to 3.10x`, with the sign of multiplication; empty where there is no interval."""
    if figure is None or units.number(figure.low) is None or units.number(figure.high) is None:
        return ""
    return f"{factor(figure.low)} to {factor(figure.high)}"


def memory(peak_bytes: float | None) -> str:
    return NOTHING if units.number(peak_bytes) is None else units.format_bytes(peak_bytes or 0)


def peak(peak_bytes: float | None, share_of_limit: float | None = None, *, is_rising: bool) -> str:
    """`2.4 GiB (31%)`; `at least 2.4 GiB (31%), still rising` where a longer training takes more."""
    part = "" if share_of_limit is None else f" ({share(share_of_limit)})"
    text = memory(peak_bytes) + part
    return f"at least {text}, still rising" if is_rising and peak_bytes is not None else text


def share(value: float | None) -> str:
    return NOTHING if units.number(value) is None else f"{value:.0%}"


def change(value: float | None) -> str:
    """`+1.2%`: how much more than another figure."""
    return NOTHING if units.number(value) is None else f"{value:+.1%}"


def percent(value: float | None) -> str:
    return NOTHING if units.number(value) is None else f"{value:.0f}%"


def duration(value_s: float | None) -> str:
    """`3m 05s`; a fraction of a second in milliseconds."""
    found = units.number(value_s)
    if found is None:
        return NOTHING
    return f"{found * 1000:.3g} ms" if 0 < found < 1 else units.format_seconds(found)


def milliseconds(value_s: float | None) -> str:
    found = units.number(value_s)
    return NOTHING if found is None else f"{found * 1000:.3g}"


def energy(value_j: float | None) -> str:
    found = units.number(value_j)
    return NOTHING if found is None else f"{found:.3g} J"


def kilowatt_hours(value: float | None) -> str:
    found = units.number(value)
    return NOTHING if found is None else f"{_amount(found)} kWh"


def money(value: float | None, currency: str) -> str:
    """`12.40 EUR`; what is less than one to three digits."""
    found = units.number(value)
    return NOTHING if found is None else f"{_amount(found)} {currency}".rstrip()


def _amount(value: float) -> str:
    return f"{value:,.2f}" if value >= 1 else f"{value:.3g}"


def count(value: float | None) -> str:
    return NOTHING if value is None else f"{value:,.0f}"


def setting(value: object) -> str:
    """A setting as a configuration file writes it, a float to three digits."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:.3g}"
    return "none" if value is None else str(value)


def plural(number: int, what: str) -> str:
    """`1 trial`, `2 trials`."""
    return f"{number:,} {what}" + ("" if number == 1 else "s")
