"""Parses and formats durations and sizes (`2h`, `1m 30s`, `3GiB`), and converts values to numbers."""

import math
import re
from collections.abc import Mapping
from reprlib import Repr

from autotune.core.errors import InputError

S_PER_HOUR = 3600.0

_SECONDS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"": 1, "B": 1} | {
    f"{letter}{suffix}": base**power
    for power, letter in enumerate("KMGT", start=1)
    for suffix, base in (("", 1024), ("iB", 1024), ("B", 1000))
}

DURATION_PATTERN = rf"^\s*(\d+(\.\d+)?\s*|(\d+(\.\d+)?\s*({'|'.join(_SECONDS)})\s*)+)$"
_ROUND_MINUTES = (5, 10, 15, 20, 30, 40, 60, 90, 120, 180, 240, 360, 480, 720)
LONGEST_S = 3650 * 86400.0
_MOST_BYTES = 2**50
_MOST_SHOWN = 200  # characters of a quoted value
_SHORT = Repr()  # reads only the first elements: YAML aliases can expand to billions
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = _MOST_SHOWN


def number(value: object) -> float | None:
    """Returns `value` as a float; None for a bool, and if it is not a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        as_float = float(value)
    except OverflowError:
        return None
    return as_float if math.isfinite(as_float) else None


def numbers(values: Mapping[str, object]) -> dict[str, float]:
    return {name: as_float for name, value in values.items() if (as_float := number(value)) is not None}


def parse_whole(text: str) -> int | None:
    """Returns the whole number in `text`; None for other text, and for more digits than Python reads."""
    try:
        return int(text) if text.isdecimal() else None
    except ValueError:
        return None


def quote(value: object) -> str:
    """Returns `value` as an error message quotes it, cut if it is long."""
    try:
        text = _SHORT.repr(value)
    except ValueError:  # an integer of thousands of digits
        text = "a number too large to be shown"
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def seconds(text: str | float) -> float:
    """Parses a duration, also one of several units, to seconds; raises InputError if it is not positive."""
    parts = re.split(r"(?<=[a-z])\s*(?=\d)", str(text))
    values = [_parse(part, _SECONDS if parts[1:] else {"": 1.0, **_SECONDS}) for part in parts]
    value = math.nan if None in values else sum(filter(None, values))
    if not 0 < value <= LONGEST_S:
        rule = "a duration is a positive number with s, m, h or d (90s, 1h 30m), up to 3650d"
        raise InputError(f"{rule}, got {quote(text)}")
    return value


def size_bytes(text: str | float) -> int:
    """Parses a size to bytes; raises InputError if `text` is not a positive one."""
    value = _parse(text, _BYTES)
    if value is None or not 1 <= value <= _MOST_BYTES:
        rule = "a size is a positive number with MiB, GiB, MB or GB (3GiB, 800MB), up to 1024TiB"
        raise InputError(f"{rule}, got {quote(text)}")
    return int(value)


def _parse(text: str | float, units: dict[str, float] | dict[str, int]) -> float | None:
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", str(text))
    if match is None or match[2] not in units:
        return None
    return float(match[1]) * units[match[2]]


def format_seconds(value_s: float) -> str:
    """Formats a duration for people: `42s`, `3m 05s`, `2h 07m`."""
    total = round(value_s)
    hours, rest = divmod(total, 3600)
    minutes, secs = divmod(rest, 60)
    if hours:
        return f"{hours}h {minutes:02d}m"
    return f"{minutes}m {secs:02d}s" if minutes else f"{secs}s"


def exact(value_s: float) -> str:
    """Formats a duration as options take it, in whole seconds: `20m`, `1m37s`, `2h`."""
    minutes, secs = divmod(round(value_s), 60)
    parts = (minutes // 60, "h"), (minutes % 60, "m"), (secs, "s")
    return "".join(f"{count}{unit}" for count, unit in parts if count) or "0s"


def round_up(value_s: float) -> str:
    """Rounds up to the next round duration, as options take it: `5m`, `40m`, `3h`, `2d`."""
    minutes = next((m for m in _ROUND_MINUTES if 60 * m >= value_s), None)
    return exact(60 * minutes) if minutes else f"{math.ceil(value_s / 86400)}d"


def format_bytes_interval(low: float, high: float, like: str) -> str:
    """Returns `2.1 to 2.8`; an end has a unit only if it differs from the one of the text `like`."""
    unit = f" {like.split()[1]}"
    return " to ".join(format_bytes(end).removesuffix(unit) for end in (low, high))


def format_bytes(value: float) -> str:
    """Formats bytes for people: `312 KiB`, `812 MiB`, `2.4 GiB`."""
    if value >= 2**30:
        return f"{value / 2**30:.1f} GiB"
    return f"{value / 2**20:.0f} MiB" if value >= 2**20 else f"{value / 2**10:.0f} KiB"
