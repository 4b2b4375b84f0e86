"""The provenance of a session's figures, and the check that new figures would be comparable."""

import os
import shlex
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
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
from autotune.system.telemetry import Hardware
from autotune.workloads.base import Workload

_PACKAGES = ("autotune-r2gen", "torch", "ray", "optuna")
# Facts that figures depend on besides the settings, with the user's word for each.
_DECISIVE = {
    "device": "device",
    "cpus": "CPUs",
    "driver": "driver",
    "torch": "torch",
    "revision": "code",
    "data": "data",
}
# Facts that memory and quality depend on. A warm start measures speed anew, so the driver is not among them.
_LEARNT = {"hardware": "hardware", "revision": "code", "data": "data"}
# Fields of a space that decide how a configuration runs and what is measured.
_RUN = ("workload", "roles", "values", "counted_in_steps", "follow_learning_rate", "evaluate_every", "unit")
# Fields of a space that only decide how trials are judged and how many are run.
_FREE = (
    *("limits.effective_batch_size", "limits.memory_fraction"),
    *("objective.keep", "objective.within", "objective.select", "objective.target", "objective.constraints"),
    *("budget.trials", "budget.time", "budget.finalists", "budget.repeats"),
)


def collect(name: str, space: Space, workload: Workload, hardware: Hardware, seed: int) -> dict[str, Any]:
    arguments = [secrecy.hide_secrets(argument, os.environ) for argument in sys.argv[1:]]
    return {
        "session": name,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join(["python", "-m", "autotune", *arguments]),
        "hardware": hardware.description,
        "device": hardware.device,
        "cpus": hardware.cpus,
        "driver": hardware.driver if hardware.gpus else None,
        "torch": version("torch"),
        **code_facts(space, workload),
        "training_samples": workload.training_samples(space.baseline),
        "seed": seed,
        "space": spaces.to_values(space),
    }


def code_facts(space: Space, workload: Workload) -> dict[str, Any]:
    """Returns the facts about code and data here; all nodes of a cluster must have the same."""
    return {
        "versions": ", ".join(f"{name} {version(name)}" for name in _PACKAGES),
        "revision": workload.revision(),
        "data": workload.data_fingerprint(space.baseline),
    }


def decisive_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the `facts` from `collect` that must be equal for figures to be comparable."""
    return {name: facts[name] for name in _DECISIVE}


def require_same(
    session: Path, then: Mapping[str, Any], now: Mapping[str, Any], places: Collection[str]
) -> list[str]:
    """Raises InputError if new figures would be incomparable; returns a note on every harmless change."""
    if changed := changes(then, now, places):
        can_learn = warm_start_error(then, now, places) is None
        option = f" --warm-start {quoted(session)}" if can_learn else ""
        raise InputError(
            f"session {session}: has changed since it was begun, so new trials cannot be compared with its "
            f"own: {'; '.join(changed)}; undo that, or start a new search with: "
            f"{search_command(session)}{option}"
        )
    free = [text for name, text in _space_changes(then, now) if name in _FREE]
    return [f"{text}: this applies to earlier trials as well" for text in free]


def changes(then: Mapping[str, Any], now: Mapping[str, Any], places: Collection[str]) -> list[str]:
    """Returns the changes since `then` that make new figures incomparable, a line each."""
    left_out = {*_FREE, *(f"baseline.{place}" for place in places)}  # paths: files may move
    differ = {key: label for key, label in _DECISIVE.items() if then.get(key) and then[key] != now[key]}
    facts = [_describe(label, then[key], now[key]) for key, label in differ.items()]
    return [*facts, *(text for name, text in _space_changes(then, now) if name not in left_out)]


def _space_changes(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields the name and a description of every difference between the two search spaces."""
    earlier = then.get("space", {})
    with suppress(InputError):  # gives it the defaults of keys that did not exist when it was written
        earlier = spaces.to_values(spaces.from_values(earlier, "provenance"))
    before, after = _flat(earlier), _flat(now["space"])
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            yield name, _describe(f"{name} of space.yaml", before.get(name), after.get(name))


def _flat(space: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values by name; the values of a section are named `section.name`."""
    flat: dict[str, Any] = {}
    for name, value in space.items():
        is_section = isinstance(value, Mapping)
        flat |= {f"{name}.{key}": v for key, v in value.items()} if is_section else {name: value}
    return flat


def _describe(what: str, then: Any, now: Any) -> str:
    old, new = ("none" if value is None else str(value) for value in (then, now))
    return f"{what} {old}, now {new}"


def warm_start_error(then: Mapping[str, Any], now: Mapping[str, Any], places: Collection[str]) -> str | None:
    """Returns why a session with provenance `now` cannot learn from one with `then`; None if it can.

    Knobs and goals may differ, because only the trials' memory and quality are used. Data may not: quality
    depends on it, and so may a step's time and memory.
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
