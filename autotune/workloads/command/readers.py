"""Parses figures from a script's output lines and file rows. Pure."""

import csv
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

_COLOURS = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_GROUPED = re.compile(r"[,_](?=\d)")  # in 12,000


class Parsed(NamedTuple):
    """Rows of a file, and the offset of the next: in bytes, or in lines of a CSV file."""

    rows: list[dict[str, float]]
    end: int


def plain(line: str) -> str:
    """Returns `line` without color codes."""
    return _COLOURS.sub("", line) if "\x1b" in line else line


class Patterns:
    """Named patterns to search in lines.

    `missing` has those never found, `no_number` the last match of each that was not a number.
    """

    def __init__(self, patterns: Mapping[str, str]) -> None:
        self._patterns = {name: re.compile(pattern) for name, pattern in patterns.items()}
        self.missing = dict(patterns)
        self.no_number: dict[str, str] = {}

    def find(self, line: str) -> dict[str, float]:
        """Returns the numbers in `line` by name: the first matched group of a pattern's last match."""
        numbers: dict[str, float] = {}
        for name, pattern in self._patterns.items():
            if pattern.groups == 0:
                if pattern.search(line):
                    numbers[name] = 1.0
                continue
            for match in pattern.finditer(line):
                text = next((group for group in match.groups() if group is not None), "")
                if (number := number_in(text)) is None:
                    self.no_number[name] = text
                else:
                    numbers[name] = number
        for name in numbers:
            self.missing.pop(name, None)
        return numbers


def number_in(text: str) -> float | None:
    """Returns `text` as a number, `nan` included; None if it is not one."""
    try:
        return float(_GROUPED.sub("", text.strip()))
    except ValueError:
        return None


def json_lines(data: bytes, start: int) -> Parsed:
    """Returns the numbers in complete JSON lines from byte `start` on; nested ones by dotted name."""
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
    """Returns the numbers in rows after the first `start` lines, by the header's names.

    Counts lines, not bytes, because loggers rewrite the file to add a column. If there are fewer lines than
    before, all are new.
    """
    lines = data[: data.rfind(b"\n") + 1].splitlines() or [b""]
    names = _cells(lines[0])
    rows = []
    for line in lines[max(1, start if start <= len(lines) else 0) :]:
        cells = ((name.strip(), number_in(text)) for name, text in zip(names, _cells(line), strict=False))
        rows.append({name: number for name, number in cells if number is not None})
    return Parsed([row for row in rows if row], len(lines))


def _cells(line: bytes) -> list[str]:
    with suppress(csv.Error):
        return next(csv.reader([line.decode(errors="replace")]), [])
    return []
