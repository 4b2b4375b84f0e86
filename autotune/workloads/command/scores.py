"""Finds scores in a script's output, in growing files, and in its logs for TensorBoard or W&B."""

import csv
import glob
import json
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from autotune.inside.messages import Message, Scores

LOGS = ("tensorboard", "wandb")  # not read as files: the hook sends what a script logs
_CSV = "csv"
_EMPTY_S = 1.0  # a file that is empty for less time is being rewritten
_CLOCK_REALTIME_COARSE = 5  # Linux clock of file system timestamps
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_GROUPED = re.compile(r"[,_](?=\d)")  # in 12,000


class Parsed(NamedTuple):
    """Rows of a file, and the offset of the next row: in bytes, or in lines of a CSV file."""

    rows: list[dict[str, float]]
    end: int


def plain(line: str) -> str:
    """Returns `line` without color codes."""
    return _COLOURS.sub("", line) if "\x1b" in line else line


class Patterns:
    """Named patterns to search in lines."""

    def __init__(self, patterns: Mapping[str, str]) -> None:
        self._patterns = {name: re.compile(pattern) for name, pattern in patterns.items()}
        self.missing = dict(patterns)  # without a match so far
        self.no_number: dict[str, str] = {}  # matched texts that are not numbers

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
    """Returns the numbers in rows after the first `start` lines, by the header's names."""
    # Lines are counted, not bytes, because loggers rewrite the file to add a column; if fewer, all are new.
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


_PARSERS: Mapping[str, Callable[[bytes, int], Parsed]] = {"jsonl": json_lines, _CSV: csv_rows}


def matching(pattern: str) -> list[Path]:
    """Returns the files and directories that match an absolute `pattern`."""
    return [Path(place) for place in glob.glob(pattern)]  # noqa: PTH207 - Path.glob takes relative patterns only


def written_s(mtime_ns: int) -> float:
    """Converts an mtime to the monotonic clock, corrected for the lag of timestamps."""
    lag_s = time.clock_getres(_CLOCK_REALTIME_COARSE)
    return mtime_ns / 1e9 + lag_s + time.monotonic() - time.time()


class Follower:
    """Follows files, or directories of logs, that match `pattern`; `names` has each score's key in a row."""

    def __init__(self, kind: str, pattern: str, names: Mapping[str, str]) -> None:
        self._kind, self._pattern, self._names = kind, pattern, names
        self._ends: dict[Path, int] = {}
        self._seen: dict[Path, tuple[int, int]] = {}
        self._looked_s = float("-inf")
        self.missing: dict[str, str] = {}
        self.look()  # present contents are of an earlier attempt
        self.missing = dict(names)  # not seen yet

    def look(self) -> list[Message]:
        """Returns the scores added to files since the last call, with the times of writing, by file name."""
        before_s, self._looked_s = self._looked_s, time.monotonic()
        files = [] if self._kind in LOGS else sorted({file.resolve() for file in matching(self._pattern)})
        return [row for file in files if file.is_file() for row in self._grown(file, before_s)]

    def named_scores(self, place: str, row: Mapping[str, float]) -> dict[str, float]:
        """Returns the scores in a logged `row`; none if the directory `place` is not followed."""
        followed = (one.resolve() for one in matching(self._pattern))
        return self._scores(row) if any(map(Path(place).resolve().is_relative_to, followed)) else {}

    def _scores(self, row: Mapping[str, float]) -> dict[str, float]:
        scores = {name: row[key] for name, key in self._names.items() if key in row}
        for name in scores:
            self.missing.pop(name, None)
        return scores

    def _grown(self, file: Path, before_s: float) -> list[Message]:
        """Returns the new rows at the time of writing, or at `before_s` if later: the clock may jump."""
        with suppress(OSError):  # removed meanwhile
            status = file.stat()
            if self._seen.get(file) == (status.st_mtime_ns, status.st_size):
                return []
            at_s = min(time.monotonic(), written_s(status.st_mtime_ns))
            if status.st_size == 0 and time.monotonic() - at_s < _EMPTY_S:
                return []
            start = self._ends.get(file, 0)
            start = start if start <= status.st_size else 0  # else it was rewritten
            first = 0 if self._kind == _CSV else start  # a CSV file's ends are lines, and it has a header
            with file.open("rb") as stream:
                stream.seek(first)
                rows, end = _PARSERS[self._kind](stream.read(), start - first)
            self._ends[file] = first + end
            self._seen[file] = (status.st_mtime_ns, status.st_size)
            at_s = max(at_s, before_s)
            return [Message(at_s, Scores(scores)) for row in rows if (scores := self._scores(row))]
        return []
