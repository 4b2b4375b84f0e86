"""Scores that are not in a script's output: in files that grow, or logged to TensorBoard or W&B."""

import glob
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from autotune.workloads.command import readers
from autotune.workloads.command.readers import Parsed

LOGS = ("tensorboard", "wandb")  # not read: the hook tells what a script logs, before it is in a file
_CSV = "csv"
_PARSERS: Mapping[str, Callable[[bytes, int], Parsed]] = {"jsonl": readers.json_lines, _CSV: readers.csv_rows}
_EMPTY_S = 1.0  # a file that is empty for less is rewritten with all that it had
_CLOCK_REALTIME_COARSE = 5  # Linux's, by which file systems stamp


def matching(pattern: str) -> list[Path]:
    """Returns the files and directories that match an absolute `pattern`."""
    return [Path(place) for place in glob.glob(pattern)]  # noqa: PTH207 - Path has it for relative ones


def written_s(mtime_ns: int) -> float:
    """Returns when a file was written, by the monotonic clock.

    The clock by which files are stamped lags by up to its resolution.
    """
    lag_s = time.clock_getres(_CLOCK_REALTIME_COARSE)
    return mtime_ns / 1e9 + lag_s + time.monotonic() - time.time()


class Found(NamedTuple):
    """The scores of a row, and when the file was written that has it, by the monotonic clock."""

    at_s: float
    scores: dict[str, float]


class Follower:
    """Follows what a script writes into the files, or logs in the directories, that match `pattern`.

    Files of a `kind` are followed from where they end now. `names` says under which key of a row each score
    is; `missing` are those that have not come yet.
    """

    def __init__(self, kind: str, pattern: str, names: Mapping[str, str]) -> None:
        self._kind, self._pattern, self._names = kind, pattern, names
        self._ends: dict[Path, int] = {}
        self._seen: dict[Path, tuple[int, int]] = {}
        self.missing: dict[str, str] = {}
        self.look()  # what is there already is of an earlier attempt
        self.missing = dict(names)

    def look(self) -> list[Found]:
        """Returns the scores that have come into files since the last time, in the order of their names."""
        files = [] if self._kind in LOGS else sorted({file.resolve() for file in matching(self._pattern)})
        return [found for file in files if file.is_file() for found in self._grown(file)]

    def told(self, place: Path, row: Mapping[str, float]) -> dict[str, float]:
        """Returns the scores in a `row` that was logged in the directory `place`, if that is followed."""
        followed = (one.resolve() for one in matching(self._pattern))
        return self._scores(row) if any(map(place.resolve().is_relative_to, followed)) else {}

    def _scores(self, row: Mapping[str, float]) -> dict[str, float]:
        scores = {name: row[key] for name, key in self._names.items() if key in row}
        for name in scores:
            self.missing.pop(name, None)
        return scores

    def _grown(self, file: Path) -> list[Found]:
        with suppress(OSError):  # it was there a moment ago
            status = file.stat()
            if self._seen.get(file) == (status.st_mtime_ns, status.st_size):
                return []
            at_s = min(time.monotonic(), written_s(status.st_mtime_ns))
            if status.st_size == 0 and time.monotonic() - at_s < _EMPTY_S:
                return []
            start = self._ends.get(file, 0)
            start = start if start <= status.st_size else 0  # or else it was rewritten
            rows, self._ends[file] = self._parsed(file, start)
            self._seen[file] = (status.st_mtime_ns, status.st_size)
            return [Found(at_s, scores) for row in rows if (scores := self._scores(row))]
        return []

    def _parsed(self, file: Path, start: int) -> Parsed:
        """Returns the rows after byte `start`; of a CSV file, whose header counts, after line `start`."""
        first = 0 if self._kind == _CSV else start
        with file.open("rb") as stream:
            stream.seek(first)
            rows, end = _PARSERS[self._kind](stream.read(), start - first)
        return Parsed(rows, first + end)
