"""The records of a trial as its workload yielded them, one per line; a mark begins every attempt."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from autotune.core import units
from autotune.core.measurement import Evaluation
from autotune.core.record_names import COMPILING, STANDS_FOR, SUSPENDED
from autotune.judging.measurement.trends import Point
from autotune.storage.layout import TrialDir


def is_mark(record: Mapping[str, Any]) -> bool:
    """Returns True if `record` is the mark of a new attempt, which has no samples."""
    return "samples" not in record


def is_break(record: Mapping[str, Any]) -> bool:
    """Returns True if no speed is measured across a record: something compiled, or all was suspended."""
    return record.get(COMPILING) is True or SUSPENDED in record


def steps_of(record: Mapping[str, Any]) -> int:
    return max(1, int(units.number(record.get(STANDS_FOR)) or 1))


def is_score(name: str) -> bool:
    """Returns True if a figure of an evaluation is a score, not its progress or memory use."""
    return name not in {"samples", "epoch"} and not (name.startswith("memory_") and name.endswith("_bytes"))


def read_records(place: TrialDir) -> Iterator[dict[str, Any]]:
    """Yields the records of a trial, without invalid lines and those that lack what all readers need."""
    for record in lines_of(place.records_file):
        if isinstance(record, dict):
            needed = ("attempt", "clock_s") if is_mark(record) else ("samples", "at_s")
            if all(units.number(record.get(name)) is not None for name in needed):
                yield record


def lines_of(file: Path) -> Iterator[Any]:
    """Yields the values in a file of JSON lines, skipping invalid lines; none if there is no file."""
    if not file.is_file():
        return
    with file.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            with suppress(ValueError, RecursionError):
                yield json.loads(line)


class AttemptTimes(NamedTuple):
    """When an attempt began, by the wall clock and by the machine's monotonic one, and its seconds."""

    at_s: float
    clock_s: float
    seconds: float
    node: str = ""

    def overlaps(self, other: "AttemptTimes") -> bool:
        """Returns False if either clock shows one before the other: a wall clock may have been set."""
        starts = [(self.at_s, other.at_s)]
        starts += [(self.clock_s, other.clock_s)] if self.node == other.node else []
        return all(mine < its + other.seconds and its < mine + self.seconds for mine, its in starts)


def attempts_of(records: Iterable[Mapping[str, Any]]) -> list[AttemptTimes]:
    """Returns the times of each attempt, up to its last record."""
    attempts: list[AttemptTimes] = []
    clock_s = 0.0
    for record in records:
        if is_mark(record):
            clock_s = record["clock_s"]
            attempts.append(AttemptTimes(record["attempt"], clock_s, 0.0, record.get("node", "")))
        elif attempts:
            clock_s += units.number(record.get(SUSPENDED)) or 0.0  # not part of the duration
            attempts[-1] = attempts[-1]._replace(seconds=record["at_s"] - clock_s)
    return attempts


def seconds_of(records: Iterable[Mapping[str, Any]]) -> float:
    return sum((attempt.seconds for attempt in attempts_of(records)), 0.0)


def open_lines(file: Path) -> TextIO:
    """Opens a file for appending lines, after ending a line that a kill has cut short."""
    with file.open("ab+") as lines:
        if lines.tell():
            lines.seek(-1, os.SEEK_END)
            if lines.read() != b"\n":
                lines.write(b"\n")
    return file.open("a", encoding="utf-8")


def forget_from(points: list[Evaluation] | list[Point], samples: int) -> None:
    """Removes the points at or after `samples`, since a resumed training yields them again."""
    while points and points[-1].samples >= samples:
        points.pop()
