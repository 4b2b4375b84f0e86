"""Log of a training's events, one JSON line each, next to its records."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from autotune.core import units
from autotune.storage.records import lines_of, open_lines


class Kind(StrEnum):
    """Kind of an event."""

    BEGUN = "begun"
    CONTINUED = "continued"
    RETRIED = "retried"
    HALVED = "halved"
    DRIFT = "drift"
    LEAK = "leak"
    STOPPED = "stopped"
    ENDED = "ended"


@dataclass(frozen=True)
class TrainingEvent:
    """Something that happened to a training; `text` is one line for people."""

    at: float  # seconds since 1970
    samples: int
    kind: Kind
    text: str


def write(file: Path, event: TrainingEvent) -> None:
    """Appends an event; written events survive a kill."""
    with open_lines(file) as stream:
        stream.write(json.dumps(asdict(event)) + "\n")


def read(file: Path) -> Iterator[TrainingEvent]:
    """Yields the events in `file`, skipping corrupt lines; nothing if there is no file."""
    kinds = [str(kind) for kind in Kind]
    for line in lines_of(file):
        if not isinstance(line, dict) or line.get("kind") not in kinds:
            continue
        at, samples = (units.number(line.get(name)) for name in ("at", "samples"))
        if at is not None and samples is not None:
            yield TrainingEvent(at, int(samples), Kind(line["kind"]), str(line.get("text", "")))
