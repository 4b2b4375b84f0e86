"""The messages from inside a training, one JSON line each. Pure: no process, no socket."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Step:
    """An optimizer step seen by a hook, with its figures; samples and tokens are None if unknown."""

    samples: int | None
    figures: Mapping[str, Any] = field(default_factory=dict)
    tokens: int | None = None


@dataclass(frozen=True)
class Logged:
    """Scores logged to TensorBoard or W&B in the directory `place`, by the names used there."""

    scores: Mapping[str, float]
    place: str


@dataclass(frozen=True)
class ScriptError:
    """The exception that ended a script, or made a record unsendable; `type` is its qualified name."""

    type: str
    message: str


class GpuLostError(RuntimeError):
    """A trial does not train on its GPU, so its measurements would be wrong."""


@dataclass(frozen=True)
class Message:
    """The sender, the time by the machine's monotonic clock, and exactly one kind of content."""

    at_s: float
    pid: int
    rank: int
    record: Mapping[str, Any] | None = None
    step: Step | None = None
    logged: Logged | None = None
    error: ScriptError | None = None
    gpu_lost: str = ""  # why a process does not train on the GPU that its trial has, and what to do
    taken: tuple[str, ...] = ()  # arguments that replaced the script's own: `loader.num_workers`
    is_queued: bool = False  # the GPU had not finished: the step of the record ends later


class Stamped(dict[str, Any]):
    """A record of another process with its time: `at_s` of the machine's `time.monotonic()`.

    It may stand for several `steps`, of which it describes the last. Figures under the tuner's own names are
    those of that process and override the tuner's.
    """

    def __init__(self, record: Mapping[str, Any], at_s: float, steps: int = 1) -> None:
        super().__init__(record)
        self.at_s, self.steps = at_s, steps


def parse(line: bytes) -> Message | None:
    """Returns the message in a line, None if it is invalid."""
    try:
        return _message(json.loads(line))
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None


def _message(content: Mapping[str, Any]) -> Message:
    at_s, pid, rank = float(content["at_s"]), int(content["pid"]), int(content["rank"])
    if not math.isfinite(at_s):
        raise ValueError("a stamp must be finite")
    if "record" in content:
        is_queued = content.get("queued") is True
        return Message(at_s, pid, rank, record=_mapping(content["record"]), is_queued=is_queued)
    if "step" in content:
        return Message(at_s, pid, rank, step=_step(_mapping(content["step"])))
    if "logged" in content:
        return Message(at_s, pid, rank, logged=_logged(_mapping(content["logged"])))
    if "gpu_lost" in content:
        return Message(at_s, pid, rank, gpu_lost=str(content["gpu_lost"]))
    if "taken" in content:
        return Message(at_s, pid, rank, taken=tuple(map(str, content["taken"])))
    error = _mapping(content["error"])
    return Message(at_s, pid, rank, error=ScriptError(str(error["type"]), str(error["message"])))


def _step(content: Mapping[str, Any]) -> Step:
    figures = _mapping(content.get("figures", {}))
    return Step(_count(content["samples"]), figures, _count(content.get("tokens")))


def _count(value: object) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise ValueError("must be a count")
    return value


def _logged(content: Mapping[str, Any]) -> Logged:
    scores = _mapping(content["scores"])
    return Logged({name: float(score) for name, score in scores.items()}, str(content["place"]))


def _mapping(value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise TypeError("must be an object")
    return value
