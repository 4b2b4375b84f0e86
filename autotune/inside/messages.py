"""What is said in a line that comes from inside a training. Pure: no process, no socket."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Step:
    """One optimizer step seen by a hook, and its measurements: samples and tokens are None where unknown."""

    samples: int | None
    figures: Mapping[str, Any] = field(default_factory=dict)
    tokens: int | None = None


@dataclass(frozen=True)
class Logged:
    """Scores logged to TensorBoard or W&B in the directory `place`, by their names there."""

    scores: Mapping[str, float]
    place: str


@dataclass(frozen=True)
class ScriptError:
    """The exception that has ended a script, or a record that could not be sent: its type's full name."""

    type: str
    message: str


class GpuLostError(RuntimeError):
    """A trial does not train on its GPU: what it measured would pass for figures of that."""


@dataclass(frozen=True)
class Message:
    """The sender, the time by the machine's monotonic clock, and one of the fields that are None by default.

    `taken` are arguments that replaced the script's own: `loader.num_workers`.
    """

    at_s: float
    pid: int
    rank: int
    record: Mapping[str, Any] | None = None
    step: Step | None = None
    logged: Logged | None = None
    error: ScriptError | None = None
    gpu_lost: str = ""  # why a process does not train on the GPU that its trial has, and what to do
    taken: tuple[str, ...] = ()
    is_queued: bool = False  # the GPU had not done yet what it was given: a record's step ends later


class Stamped(dict[str, Any]):
    """A record that says when it was: at `at_s` of the machine's monotonic clock, `time.monotonic()`.

    It may stand for so many `steps`, the last of which it describes. What it carries under the tuner's own
    names is of the process that it speaks of, and wins.
    """

    def __init__(self, record: Mapping[str, Any], at_s: float, steps: int = 1) -> None:
        super().__init__(record)
        self.at_s, self.steps = at_s, steps


def parse(line: bytes) -> Message | None:
    """The message in a line; None where it is none."""
    try:
        return _message(json.loads(line))
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None


def _message(said: Mapping[str, Any]) -> Message:
    at_s, pid, rank = float(said["at_s"]), int(said["pid"]), int(said["rank"])
    if not math.isfinite(at_s):
        raise ValueError("a stamp must be finite")
    if "record" in said:
        is_queued = said.get("queued") is True
        return Message(at_s, pid, rank, record=_mapping(said["record"]), is_queued=is_queued)
    if "step" in said:
        return Message(at_s, pid, rank, step=_step(_mapping(said["step"])))
    if "logged" in said:
        return Message(at_s, pid, rank, logged=_logged(_mapping(said["logged"])))
    if "gpu_lost" in said:
        return Message(at_s, pid, rank, gpu_lost=str(said["gpu_lost"]))
    if "taken" in said:
        return Message(at_s, pid, rank, taken=tuple(map(str, said["taken"])))
    error = _mapping(said["error"])
    return Message(at_s, pid, rank, error=ScriptError(str(error["type"]), str(error["message"])))


def _step(said: Mapping[str, Any]) -> Step:
    figures = _mapping(said.get("figures", {}))
    return Step(_count(said["samples"]), figures, _count(said.get("tokens")))


def _count(value: object) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise ValueError("must be a count")
    return value


def _logged(said: Mapping[str, Any]) -> Logged:
    scores = _mapping(said["scores"])
    return Logged({name: float(score) for name, score in scores.items()}, str(said["place"]))


def _mapping(value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise TypeError("must be an object")
    return value
