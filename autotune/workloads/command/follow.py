"""Files that a script writes, followed while they grow."""

import glob
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from autotune.workloads.command import binary, readers
from autotune.workloads.command.binary import Parsed

_PARSERS: Mapping[str, Callable[[bytes, int], Parsed]] = {
    "jsonl": readers.json_lines,
    "csv": readers.csv_rows,
    "tensorboard": binary.events,
    "wandb": binary.run_history,
}
_IN_A_DIRECTORY = {"tensorboard": "*tfevents*", "wandb": "*.wandb"}
HELD_BACK = frozenset(_IN_A_DIRECTORY)  # kinds whose writers hold back what they are given
_EMPTY_S = 1.0  # a file that is empty for less is rewritten with all that it had


_CLOCK_REALTIME_COARSE = 5  # Linux's, by which file systems stamp
# From which byte on a file is read for what comes after one: of a CSV file its header counts.
_FIRST_BYTE: Mapping[str, Callable[[int], int]] = {
    "jsonl": lambda start: start,
    "csv": lambda _: 0,
    "tensorboard": lambda start: start,
    "wandb": lambda start: start - start % binary.BLOCK_BYTES,
}


def matching(pattern: str) -> list[Path]:
    """The files and directories that match an absolute `pattern`."""
    return [Path(place) for place in glob.glob(pattern)]  # noqa: PTH207 - Path has it for relative ones


def written_s(mtime_ns: int) -> float:
    """When a file was written, by the monotonic clock; its stamp's clock lags by up to its resolution."""
    lag_s = time.clock_getres(_CLOCK_REALTIME_COARSE)
    return mtime_ns / 1e9 + lag_s + time.monotonic() - time.time()


class Found(NamedTuple):
    """The scores of a row, and when the file was written that has it, by the monotonic clock."""

    at_s: float
    scores: dict[str, float]


class Follower:
    """Follows the files of a `kind` that match `pattern`, from where they end now.

    `names` says under which key of a row each score is; other rows are passed over.
    """

    def __init__(self, kind: str, pattern: str, names: Mapping[str, str]) -> None:
        self._parse, self._first_byte = _PARSERS[kind], _FIRST_BYTE[kind]
        self._inside = _IN_A_DIRECTORY.get(kind, "")
        self._pattern, self._names = pattern, names
        self._ends: dict[Path, int] = {}
        self._seen: dict[Path, tuple[int, int]] = {}
        self._told: set[str] = set()  # scores that need not be read any more
        self.missing: dict[str, str] = {}
        self.look()  # what is there already is of an earlier attempt
        self.missing = dict(names)

    def look(self) -> list[Found]:
        """The scores that have come since the last time, in the order of the files' names."""
        found = [one for file in self._files() for one in self._grown(file)]
        for one in found:
            for name in one.scores:
                self.missing.pop(name, None)
        return found

    def told(self, place: Path, row: Mapping[str, float]) -> dict[str, float]:
        """The scores of a `row` that was logged into a file of the directory `place`, told as it was logged.

        From then on they are not read: they come into the file later, and would count twice.
        """
        followed = matching(self._pattern)
        if not any(place.is_relative_to(one) or (one.parent == place and one.is_file()) for one in followed):
            return {}
        scores = {name: row[key] for name, key in self._names.items() if key in row}
        self._told |= scores.keys()
        for name in scores:
            self.missing.pop(name, None)
        return scores

    def _files(self) -> list[Path]:
        """Each once: W&B has a link to its latest run."""
        places = matching(self._pattern)
        below = [
            file for place in places if self._inside and place.is_dir() for file in place.rglob(self._inside)
        ]
        return sorted({file.resolve() for file in [*places, *below] if file.is_file()})

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
            names = {name: key for name, key in self._names.items() if name not in self._told}
            scored = ({name: row[key] for name, key in names.items() if key in row} for row in rows)
            return [Found(at_s, scores) for scores in scored if scores]
        return []

    def _parsed(self, file: Path, start: int) -> Parsed:
        """The rows after byte `start`, for which not the whole file is read."""
        first = self._first_byte(start)
        with file.open("rb") as stream:
            stream.seek(first)
            rows, end = self._parse(stream.read(), start - first)
        return Parsed(rows, first + end)
