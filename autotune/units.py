"""Durations and sizes as people write them: `2h`, `90s`, `3GiB`."""

import re

from autotune.errors import InputError

_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"": 1, "B": 1} | {
    f"{letter}{suffix}": base**power
    for power, letter in enumerate("KMGT", start=1)
    for suffix, base in (("", 1024), ("iB", 1024), ("B", 1000))
}


def seconds(text: str | float) -> float:
    """`text` in seconds; raises InputError when it is not a positive duration."""
    value = _parse(text, _SECONDS)
    if value is None:
        raise InputError(f"a duration is a positive number with s, m, h or d (90s, 2h): got {text!r}")
    return value


def size_bytes(text: str | float) -> int:
    """`text` in bytes; raises InputError when it is not a positive size."""
    value = _parse(text, _BYTES)
    if value is None:
        raise InputError(f"a size is a positive number with MiB, GiB, MB or GB (3GiB, 800MB): got {text!r}")
    return int(value)


def _parse(text: str | float, units: dict[str, float] | dict[str, int]) -> float | None:
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", str(text))
    if match is None or match[2] not in units:
        return None
    return float(match[1]) * units[match[2]] or None


def format_seconds(value_s: float) -> str:
    """`value_s` for people: `42s`, `3m 05s`, `2h 07m`."""
    total = round(value_s)
    hours, rest = divmod(total, 3600)
    minutes, secs = divmod(rest, 60)
    if hours:
        return f"{hours}h {minutes:02d}m"
    return f"{minutes}m {secs:02d}s" if minutes else f"{secs}s"


def format_bytes(value: float) -> str:
    """`value` bytes for people: `812 MiB`, `2.4 GiB`."""
    return f"{value / 2**30:.1f} GiB" if value >= 2**30 else f"{value / 2**20:.0f} MiB"
