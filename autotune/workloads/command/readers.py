"""Figures in what a script writes: in the lines of its output, and in rows of its files. Pure."""

import csv
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

_COLOURS = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_GROUPED = re.compile(r"[,_](?=\d)")  # in 12,000


class Parsed(NamedTuple):
    """The rows of a file, and where the next ones begin: a byte, or a line of a CSV file."""

    rows: list[dict[str, float]]
    end: int


def plain(line: str) -> str:
    """`line` without what colours it."""
    return _COLOURS.sub("", line) if "\x1b" in line else line


class Patterns:
    """Patterns by name, looked for in lines; `missing` were never found, `no_number` has what was none."""

    def __init__(self, patterns: Mapping[str, str]) -> None:
        self._patterns = {name: re.compile(pattern) for name, pattern in patterns.items()}
        self.missing = dict(patterns)
        self.no_number: dict[str, str] = {}

    def find(self, line: str) -> dict[str, float]:
        """The numbers in `line`, by name: a pattern's first group that took part, of its last match."""
        found: dict[str, float] = {}
        for name, pattern in self._patterns.items():
            if pattern.groups == 0:
                if pattern.search(line):
                    found[name] = 1.0
                continue
            for match in pattern.finditer(line):
                text = next((group for group in match.groups() if group is not None), "")
                if (number := number_in(text)) is None:
                    self.no_number[name] = text
                else:
                    found[name] = number
        for name in found:
            self.missing.pop(name, None)
        return found


def number_in(text: str) -> float | None:
    """The number that `text` is, `nan` included; None where it is none."""
    try:
        return float(_GROUPED.sub("", text.strip()))
    except ValueError:
        return None


def json_lines(data: bytes, start: int) -> Parsed:
    """The numbers of every object that is a whole line from byte `start` on; nested ones by dotted name."""
    end = data.rfind(b"\n") + 1
    rows = []
    for line in data[start:end].splitlines():
        with suppress(ValueError, RecursionError):
            rows.append(dict(_numbers(json.loads(line))))
    return Parsed([row for row in rows if row], max(start, end))


def _numbers(value: Any, name: str = "") -> list[tuple[str, float]]:
    if isinstance(value, Mapping):
        inner = ((f"{name}.{key}" if name else str(key), one) for key, one in value.items())
        return [pair for path, one in inner for pair in _numbers(one, path)]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return [(name, float(value))] if is_number else []


def csv_rows(data: bytes, start: int) -> Parsed:
    """The numbers of every row after the first `start` lines, by the first line's names.

    Lines are counted, and not bytes: a logger that gets another column rewrites all of them. Where there are
    fewer than before, all are new.
    """
    lines = data[: data.rfind(b"\n") + 1].splitlines() or [b""]
    names = _cells(lines[0])
    rows = []
    for line in lines[max(1, start if start <= len(lines) else 0) :]:
        found = ((name.strip(), number_in(text)) for name, text in zip(names, _cells(line), strict=False))
        rows.append({name: number for name, number in found if number is not None})
    return Parsed([row for row in rows if row], len(lines))


def _cells(line: bytes) -> list[str]:
    with suppress(csv.Error):
        return next(csv.reader([line.decode(errors="replace")]), [])
    return []
