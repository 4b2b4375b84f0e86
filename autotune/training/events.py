"""The log of a training's events, one JSON line each, beside its records."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from autotune.core import units
from autotune.storage.records import lines_of, open_lines


class Kind(StrEnum):
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
    """Something that happened to a training."""

    at: float  # seconds since 1970
    samples: int
    kind: Kind
    text: str  # one line for people


def write(file: Path, event: TrainingEvent) -> None:
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
