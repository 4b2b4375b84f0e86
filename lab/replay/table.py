"""A table of recorded runs: one file of JSON lines, a header and then a line for every run.

It holds what a search would measure - step times, peak memory or out-of-memory, quality by samples and seed -
over a whole grid of settings, so that searches can be replayed over it (see `replay`). A line may have the
machine's drift instead of a run.
"""

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

from autotune.core.errors import InputError
from autotune.core.settings import Config, Key, settings_key
from autotune.core.trial import Outcome, Status
from autotune.space import space as spaces
from autotune.space.space import Space
from lab.replay.drift import Drift

FORMAT = 1


class Point(NamedTuple):
    """An evaluation: `seconds` is what it took, 0 where the run was not timed.

    `loss` is that of held-out data, `chance` the quality of a model that ignores its input, `collapsed`
    whether the workload saw the model do so, each as far as the workload says. Older tables have the first
    three alone.
    """

    samples: int
    seconds: float
    quality: float
    loss: float | None = None
    chance: float | None = None
    collapsed: bool = False


@dataclass(frozen=True)
class Run:
    """One training run. `seed` counts from 0; seconds are on the machine that it ran on.

    `start_s` passed before the first step had ended; `step_samples` and `step_s` are those of each later one,
    and are empty where the run was not `timed`: something else ran alongside it.
    """

    config: Config
    seed: int
    outcome: Outcome
    timed: bool
    start_s: float = 0.0
    step_samples: tuple[int, ...] = ()
    step_s: tuple[float, ...] = ()
    evaluations: tuple[Point, ...] = ()
    peak_memory_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    memory_limit_bytes: int | None = None

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        read = {
            "outcome": Outcome.from_dict(values["outcome"]),
            "step_samples": tuple(values["step_samples"]),
            "step_s": tuple(values["step_s"]),
            "evaluations": tuple(Point(*point) for point in values["evaluations"]),
        }
        return cls(**{**values, **read})


@dataclass(frozen=True)
class Header:
    """What a table is of, and where its figures come from."""

    space: Space
    provenance: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        return {
            "table": FORMAT,
            "space": spaces.to_values(self.space),
            "provenance": dict(self.provenance),
        }


class Table:
    """Recorded runs, found by what of their settings matters: what differs in nothing else is equal.

    `drift` is how the machine's speed moves while it is used, None where that was not recorded.
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
        """Runs that show the speed and memory of `config`, in the order in which they were recorded."""
        return self._by_speed.get(settings_key(config, self._same_speed), [])

    def qualities(self, config: Config) -> list[Run]:
        """Runs that show the quality of `config`, the seeds in order; failed ones are left out."""
        runs = self._by_quality.get(settings_key(config, self._same_quality), [])
        by_seed = {run.seed: run for run in reversed(runs) if run.evaluations}
        return [by_seed[seed] for seed in sorted(by_seed)]

    def covers(self, config: Config) -> bool:
        """Whether a search may ask for `config`: its speed is known and its quality, or how it fails."""
        outcomes = {run.outcome.status for run in self.timed(config)}
        return bool(outcomes) and (outcomes != {Status.COMPLETED} or bool(self.qualities(config)))

    @classmethod
    def read(cls, file: Path) -> Self:
        """The table in `file`; raises InputError where it is none. A last line cut short is left out."""
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
    """A new table without runs; raises InputError where it cannot be written."""
    _append(file, json.dumps(header.to_dict()))


def append(file: Path, run: Run) -> None:
    """Adds `run`: it is on the disk when this returns."""
    _append(file, json.dumps(asdict(run)))


def append_drift(file: Path, drift: Drift) -> None:
    """Adds `drift`, which counts from now on in place of an earlier one."""
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
