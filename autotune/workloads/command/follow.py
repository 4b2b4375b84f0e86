"""Follows scores outside of a script's output: in growing files, or logged to TensorBoard or W&B."""

import glob
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from autotune.workloads.command import readers
from autotune.workloads.command.readers import Parsed

LOGS = ("tensorboard", "wandb")  # not read as files: the hook sends what a script logs
_CSV = "csv"
_PARSERS: Mapping[str, Callable[[bytes, int], Parsed]] = {"jsonl": readers.json_lines, _CSV: readers.csv_rows}
_EMPTY_S = 1.0  # a file that is empty for less time is being rewritten
_CLOCK_REALTIME_COARSE = 5  # Linux clock of file system timestamps


def matching(pattern: str) -> list[Path]:
    """Returns the files and directories that match an absolute `pattern`."""
    return [Path(place) for place in glob.glob(pattern)]  # noqa: PTH207 - Path.glob takes relative patterns only


def written_s(mtime_ns: int) -> float:
    """Returns the time of an mtime on the monotonic clock, corrected for the lag of timestamps."""
    lag_s = time.clock_getres(_CLOCK_REALTIME_COARSE)
    return mtime_ns / 1e9 + lag_s + time.monotonic() - time.time()


class Found(NamedTuple):
    """Scores of a row, and when its file was written, on the monotonic clock."""

    at_s: float
    scores: dict[str, float]


class Follower:
    """Follows what a script writes to files, or logs in directories, that match `pattern`.

    Skips the present contents of files. `names` maps scores to keys of a row; `missing` has those not seen
    yet.
    """

    def __init__(self, kind: str, pattern: str, names: Mapping[str, str]) -> None:
        self._kind, self._pattern, self._names = kind, pattern, names
        self._ends: dict[Path, int] = {}
        self._seen: dict[Path, tuple[int, int]] = {}
        self.missing: dict[str, str] = {}
        self.look()  # present contents are of an earlier attempt
        self.missing = dict(names)

    def look(self) -> list[Found]:
        """Returns the scores added to files since the last call, ordered by file name."""
        files = [] if self._kind in LOGS else sorted({file.resolve() for file in matching(self._pattern)})
        return [scores for file in files if file.is_file() for scores in self._grown(file)]

    def told(self, place: Path, row: Mapping[str, float]) -> dict[str, float]:
        """Returns the scores in a logged `row`; none if the directory `place` is not followed."""
        followed = (one.resolve() for one in matching(self._pattern))
        return self._scores(row) if any(map(place.resolve().is_relative_to, followed)) else {}

    def _scores(self, row: Mapping[str, float]) -> dict[str, float]:
        scores = {name: row[key] for name, key in self._names.items() if key in row}
        for name in scores:
            self.missing.pop(name, None)
        return scores

    def _grown(self, file: Path) -> list[Found]:
        with suppress(OSError):  # removed meanwhile
            status = file.stat()
            if self._seen.get(file) == (status.st_mtime_ns, status.st_size):
                return []
            at_s = min(time.monotonic(), written_s(status.st_mtime_ns))
            if status.st_size == 0 and time.monotonic() - at_s < _EMPTY_S:
                return []
            start = self._ends.get(file, 0)
            start = start if start <= status.st_size else 0  # else it was rewritten
            rows, self._ends[file] = self._parsed(file, start)
            self._seen[file] = (status.st_mtime_ns, status.st_size)
            return [Found(at_s, scores) for row in rows if (scores := self._scores(row))]
        return []

    def _parsed(self, file: Path, start: int) -> Parsed:
        """Returns the rows after byte `start`, or after line `start` of a CSV file, header included."""
        first = 0 if self._kind == _CSV else start
        with file.open("rb") as stream:
            stream.seek(first)
            rows, end = _PARSERS[self._kind](stream.read(), start - first)
        return Parsed(rows, first + end)
