"""Messages about what a training does; the hook in it sends each as a line of JSON. Pure."""

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple


class Step(NamedTuple):
    samples: int | None  # of an optimizer step; None: unknown
    figures: Mapping[str, Any] = {}  # fields of its record
    tokens: int | None = None  # None: unknown


class SamplesSeen(NamedTuple):
    samples: int  # so far, as printed by the script


class Scores(NamedTuple):
    scores: Mapping[str, float]  # of an evaluation, by the script's own names
    place: str = ""  # the directory of TensorBoard or W&B in which they were logged


class Reported(NamedTuple):
    record: Mapping[str, Any]  # by the training itself
    is_queued: bool = False  # the GPU has not finished the step of the record


class ScriptError(NamedTuple):
    """The exception that ended a script, or made a record unsendable; `type` is its qualified name."""

    type: str
    message: str


class GpuLost(NamedTuple):
    """A process does not train on its trial's GPU, for a `reason`, which includes the remedy."""

    reason: str


class Taken(NamedTuple):
    names: tuple[str, ...]  # searched arguments that have replaced the script's own: `loader.num_workers`


Content = Step | SamplesSeen | Scores | Reported | ScriptError | GpuLost | Taken


class Message(NamedTuple):
    at_s: float  # by the machine's monotonic clock
    content: Content


class GpuLostError(RuntimeError):
    """A trial does not train on its GPU, so its measurements would be wrong."""


class Stamped(dict[str, Any]):
    """A record of another process, made at `at_s` of the machine's `time.monotonic()`.

    It may stand for several `steps` and then describes the last one. Figures under the tuner's names are
    measured in that process and take precedence.
    """

    def __init__(self, record: Mapping[str, Any], at_s: float, steps: int = 1) -> None:
        super().__init__(record)
        self.at_s, self.steps = at_s, steps


def parse(line: bytes) -> Message | None:
    """Returns the message in a line, None if it is invalid."""
    try:
        values = json.loads(line)
        at_s = float(values["at_s"])
        if not math.isfinite(at_s):
            return None
        return Message(at_s, _content(values))
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None


def _content(values: Mapping[str, Any]) -> Content:
    if "step" in values:
        step = _mapping(values["step"])
        figures = _mapping(step.get("figures", {}))
        return Step(_count(step["samples"]), figures, _count(step.get("tokens")))
    if "record" in values:
        return Reported(_mapping(values["record"]), values.get("queued") is True)
    if "logged" in values:
        logged = _mapping(values["logged"])
        scores = {name: float(score) for name, score in _mapping(logged["scores"]).items()}
        return Scores(scores, str(logged["place"]))
    if "gpu_lost" in values:
        return GpuLost(str(values["gpu_lost"]))
    if "taken" in values:
        return Taken(tuple(map(str, values["taken"])))
    error = _mapping(values["error"])
    return ScriptError(str(error["type"]), str(error["message"]))


def _count(value: object) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise ValueError("must be a count")
    return value


def _mapping(value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise TypeError("must be an object")
    return value
