"""Where a session's figures come from, and whether new ones may be compared with them."""

import os
import shlex
import sys
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from autotune.core import secrecy
from autotune.core.errors import InputError
from autotune.core.shell import quoted
from autotune.space import spaces
from autotune.space.space import Space
from autotune.storage.store import search_command
from autotune.system import telemetry
from autotune.system.telemetry import Hardware
from autotune.workloads.base import Workload

_PACKAGES = ("autotune-r2gen", "torch", "ray", "optuna")
# What figures depend on besides the settings, and what a user calls it.
_DECISIVE = {
    "device": "device",
    "cpus": "CPUs",
    "driver": "driver",
    "torch": "torch",
    "revision": "code",
    "data": "data",
}
# What memory and quality depend on besides the settings: speed, with another driver say, is measured anew.
_LEARNT = {"hardware": "hardware", "revision": "code", "data": "data"}
# The parts of a search space that decide how a configuration runs and what is measured.
_RUN = ("workload", "roles", "values", "counted_in_steps", "follow_learning_rate", "evaluate_every", "unit")
# The parts of a search space that decide how trials are judged and how many there are, not what they do.
_FREE = (
    *("limits.effective_batch_size", "limits.memory_fraction"),
    *("objective.keep", "objective.within", "objective.select", "objective.target", "objective.constraints"),
    *("budget.trials", "budget.time", "budget.finalists", "budget.repeats"),
)


def collect(name: str, space: Space, workload: Workload, hardware: Hardware, seed: int) -> dict[str, Any]:
    """Returns all that the figures of a session called `name` would come from if it began now."""
    arguments = [secrecy.hidden(argument, os.environ) for argument in sys.argv[1:]]
    return {
        "session": name,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join(["python", "-m", "autotune", *arguments]),
        "hardware": hardware.description,
        "device": ", ".join(sorted({gpu.name for gpu in hardware.gpus})) or telemetry.cpu_model(),
        "cpus": hardware.cpus,
        "driver": hardware.driver if hardware.gpus else None,
        "torch": version("torch"),
        "revision": workload.revision(),
        "data": workload.data_fingerprint(space.baseline),
        "training_samples": workload.training_samples(space.baseline),
        "versions": ", ".join(f"{name} {version(name)}" for name in _PACKAGES),
        "seed": seed,
        "space": spaces.to_values(space),
    }


def decisive(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the facts, as `collect` gives them, that must be equal for figures to be comparable."""
    return {name: facts[name] for name in _DECISIVE}


def require_same(
    session: Path, then: Mapping[str, Any], now: Mapping[str, Any], places: Collection[str]
) -> list[str]:
    """Raises InputError if new figures would not be comparable with those of the session.

    Returns what the user should know of changes that do no harm.
    """
    if changed := changes(then, now, places):
        raise InputError(
            f"session {session}: has changed since it was begun, so new trials cannot be compared with its "
            f"own: {'; '.join(changed)}; undo that, or start a new search with: "
            f"{search_command(session)}{_warmed(session, then, now, places)}"
        )
    free = [text for name, text in _edited(then, now) if name in _FREE]
    return [f"{text}: this applies to earlier trials as well" for text in free]


def changes(then: Mapping[str, Any], now: Mapping[str, Any], places: Collection[str]) -> list[str]:
    """Returns what has changed since `then` that makes new figures incomparable.

    What was not known `then` is not compared. The settings in `places` are paths: files may move.
    """
    moved = {f"baseline.{place}" for place in places}
    return [
        *(
            _describe(label, then[key], now[key])
            for key, label in _DECISIVE.items()
            if then.get(key) and then[key] != now[key]
        ),
        *(text for name, text in _edited(then, now) if name not in _FREE and name not in moved),
    ]


def _edited(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields the names of what differs between two search spaces, and how it differs."""
    before, after = _flat(_with_defaults(then.get("space", {}))), _flat(now["space"])
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            yield name, _describe(f"{name} of space.yaml", before.get(name), after.get(name))


def _with_defaults(space: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns a search space as it was written, with keys that are newer at their defaults."""
    try:
        return spaces.to_values(spaces.from_values(space, "provenance"))
    except InputError:
        return space


def _flat(space: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values by name, those in a section by `section.name`."""
    flat: dict[str, Any] = {}
    for name, value in space.items():
        is_section = isinstance(value, Mapping)
        flat |= {f"{name}.{key}": v for key, v in value.items()} if is_section else {name: value}
    return flat


def _describe(what: str, then: Any, now: Any) -> str:
    old, new = ("none" if value is None else str(value) for value in (then, now))
    return f"{what} {old}, now {new}"


def warm_start(then: Mapping[str, Any], now: Mapping[str, Any], places: Collection[str]) -> str | None:
    """Returns why a search of `now` can learn nothing from the trials of `then`; None if it can.

    Other data change the quality, and may change time and memory of a step. Knobs and goals may differ: only
    what trials show of memory and quality is used.
    """
    try:
        before, after = (spaces.from_values(facts.get("space", {}), "of a session") for facts in (then, now))
    except InputError as error:
        return str(error)
    fixed = (before.baseline.keys() | after.baseline.keys()) - after.knobs.keys() - set(places)
    pairs = {
        **{label: (then.get(key), now.get(key)) for key, label in _LEARNT.items()},
        **{name: (getattr(before, name), getattr(after, name)) for name in _RUN},
        "samples_per_trial": (before.budget.samples_per_trial, after.budget.samples_per_trial),
        "quality": (before.objective.quality, after.objective.quality),
        "minimize": (before.objective.minimize, after.objective.minimize),
        **{name: (before.baseline.get(name), after.baseline.get(name)) for name in sorted(fixed)},
    }
    differ = [_describe(name, one, other) for name, (one, other) in pairs.items() if one != other]
    rule = "must be of the same workload, settings, data and hardware"
    return f"{rule}: {'; '.join(differ)}" if differ else None


def _warmed(session: Path, then: Mapping[str, Any], now: Mapping[str, Any], places: Collection[str]) -> str:
    """Returns the option by which a new session learns from the old one, if it can."""
    return "" if warm_start(then, now, places) else f" --warm-start {quoted(session)}"
