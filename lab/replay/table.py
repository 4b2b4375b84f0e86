"""A table of recorded runs: a file of JSON lines, a header and then one line per run.

It holds everything that a search would measure - step times, peak memory or out-of-memory, quality by samples
and seed - over a whole grid of settings, so that searches can be replayed over it (see `replay`). A line may
have the machine's drift instead of a run.
"""

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

from pydantic import TypeAdapter

from autotune.core.errors import InputError
from autotune.core.settings import Config, Key, settings_key
from autotune.core.trial import Outcome, Status
from autotune.space import spaces
from autotune.space.space import Space
from lab.replay.drift import Drift

FORMAT = 1


class Point(NamedTuple):
    """An evaluation. Older tables have only the first three fields."""

    samples: int
    seconds: float  # duration; 0 if the run was not timed
    quality: float
    loss: float | None = None  # on held-out data
    chance: float | None = None  # the quality of a model that ignores its input
    collapsed: bool = False  # the workload found the model to ignore its input


_OUTCOME = TypeAdapter(Outcome)


@dataclass(frozen=True)
class Run:
    """One training run; seconds are on the machine that recorded it."""

    config: Config
    seed: int  # from 0
    outcome: Outcome
    timed: bool  # False if something else ran alongside it; it then has no steps
    start_s: float = 0.0  # until the end of the first step
    step_samples: tuple[int, ...] = ()  # of each later step
    step_s: tuple[float, ...] = ()
    evaluations: tuple[Point, ...] = ()
    peak_memory_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    memory_limit_bytes: int | None = None

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        read = {
            "outcome": _OUTCOME.validate_python(values["outcome"]),
            "step_samples": tuple(values["step_samples"]),
            "step_s": tuple(values["step_s"]),
            "evaluations": tuple(Point(*point) for point in values["evaluations"]),
        }
        return cls(**{**values, **read})


@dataclass(frozen=True)
class Header:
    """A table's search space, and the provenance of its figures."""

    space: Space
    provenance: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        return {
            "table": FORMAT,
            "space": spaces.to_values(self.space),
            "provenance": dict(self.provenance),
        }


class Table:
    """Recorded runs, looked up by the settings that matter for speed or for quality.

    `drift` is the drift of the machine's speed, None if it was not recorded.
    """

    def __init__(self, header: Header, runs: Iterable[Run] = (), drift: Drift | None = None) -> None:
        self.header, self.space, self.drift = header, header.space, drift
        known = header.space.known
        self._same_speed, self._same_quality = known.same_speed, known.same_quality
        self._by_speed: dict[Key, list[Run]] = defaultdict(list)
        self._by_quality: dict[Key, list[Run]] = defaultdict(list)
        for run in runs:
            self.add(run)

    def add(self, run: Run) -> None:
        if run.timed:
            self._by_speed[settings_key(run.config, self._same_speed)].append(run)
        self._by_quality[settings_key(run.config, self._same_quality)].append(run)

    def timed(self, config: Config) -> list[Run]:
        """Returns the runs that show the speed and memory of `config`, in recording order."""
        return self._by_speed.get(settings_key(config, self._same_speed), [])

    def qualities(self, config: Config) -> list[Run]:
        """Returns the runs that show the quality of `config`, ordered by seed, without failed ones."""
        runs = self._by_quality.get(settings_key(config, self._same_quality), [])
        by_seed = {run.seed: run for run in reversed(runs) if run.evaluations}
        return [by_seed[seed] for seed in sorted(by_seed)]

    def covers(self, config: Config) -> bool:
        """Returns True if a search may ask for `config`: its speed and quality are known, or its failure."""
        outcomes = {run.outcome.status for run in self.timed(config)}
        return bool(outcomes) and (outcomes != {Status.COMPLETED} or bool(self.qualities(config)))

    @classmethod
    def read(cls, file: Path) -> Self:
        """Reads the table in `file`; raises InputError if it is invalid. A truncated last line is ignored."""
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"table {file}: cannot be read: {error}") from None
        values = [_parse(line) for line in text.splitlines()]
        if not values or (values[0] or {}).get("table") != FORMAT:
            raise InputError(
                f"table {file}: must begin with a line that says it is a table of format {FORMAT}"
            )
        head = values[0] or {}
        try:
            header = Header(
                spaces.complete(spaces.from_values(head["space"], str(file)), str(file)),
                head["provenance"],
            )
            lines = [value for value in values[1:] if value is not None]
            drifts = [Drift(tuple(v["drift"]), v["interval_s"]) for v in lines if "drift" in v]
            runs = [Run.from_dict(value) for value in lines if "drift" not in value]
            return cls(header, runs, drifts[-1] if drifts else None)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"table {file}: is damaged: {type(error).__name__}: {error}") from None


def _parse(line: str) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def create(file: Path, header: Header) -> None:
    """Creates a table without runs; raises InputError if it cannot be written."""
    _append(file, json.dumps(header.to_dict()))


def append(file: Path, run: Run) -> None:
    """Appends `run`, and returns once it is on the disk."""
    _append(file, json.dumps(asdict(run)))


def append_drift(file: Path, drift: Drift) -> None:
    """Appends `drift`, which replaces an earlier one."""
    _append(file, json.dumps({"drift": drift.speeds, "interval_s": drift.interval_s}))


def _append(file: Path, line: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a+b") as stream:
            stream.seek(0, os.SEEK_END)
            if stream.tell():
                stream.seek(-1, os.SEEK_END)
                if stream.read(1) != b"\n":  # a kill cut the last line short
                    stream.write(b"\n")
            stream.write(line.encode() + b"\n")
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise InputError(f"table {file}: cannot be written: {error.strerror}") from None
