"""The log of a training's events, one JSON line each, beside its records."""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from pydantic import FiniteFloat, TypeAdapter

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
    at: FiniteFloat  # seconds since 1970
    samples: int
    kind: Kind
    text: str  # one line for people


_EVENT = TypeAdapter(TrainingEvent)


def write(file: Path, event: TrainingEvent) -> None:
    with open_lines(file) as stream:
        stream.write(json.dumps(asdict(event)) + "\n")


def read(file: Path) -> Iterator[TrainingEvent]:
    """Yields the events in `file`, skipping corrupt lines; nothing if there is no file."""
    for line in lines_of(file):
        with suppress(ValueError):
            yield _EVENT.validate_python(line)
