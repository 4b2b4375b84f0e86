"""Where a session's figures come from, and whether new ones may be held against them."""

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
from autotune.storage.store import anew
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
# Of the search space, what makes a run of a configuration, and says what is measured of it.
_RUN = ("workload", "roles", "values", "counted_in_steps", "follow_learning_rate", "evaluate_every", "unit")
# Of the search space, what says how trials are judged and how many there are, and not what they do.
_FREE = (
    *("limits.effective_batch_size", "limits.memory_fraction"),
    *("objective.keep", "objective.within", "objective.select", "objective.target", "objective.constraints"),
    *("budget.trials", "budget.time", "budget.finalists", "budget.repeats"),
)


def collect(name: str, space: Space, workload: Workload, hardware: Hardware, seed: int) -> dict[str, Any]:
    """All that the figures of a session called `name` come from, if it were begun now."""
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
    """Those of `facts`, as `collect` gives them, without which figures of equal settings do not compare."""
    return {name: facts[name] for name in _DECISIVE}


def require_same(
    session: Path, then: Mapping[str, Any], now: Mapping[str, Any], places: Collection[str]
) -> list[str]:
    """Raises InputError where what a session's figures come from has changed since: none is compared then.

    Returns what the user should know of changes that do no harm.
    """
    if changed := changes(then, now, places):
        raise InputError(
            f"session {session}: has changed since it was begun, so new trials cannot be compared with its "
            f"own: {'; '.join(changed)}; undo that, or start a new search with: "
            f"{anew(session)}{_warmed(session, then, now, places)}"
        )
    free = [text for name, text in _edited(then, now) if name in _FREE]
    return [f"{text}: this applies to earlier trials as well" for text in free]


def changes(then: Mapping[str, Any], now: Mapping[str, Any], places: Collection[str]) -> list[str]:
    """What has changed since figures were measured `then`, so that none of `now` compares with them.

    What was not known `then` is not compared. Settings called `places` say where something lies: it may move.
    """
    moved = {f"baseline.{place}" for place in places}
    return [
        *(
            _told(label, then[key], now[key])
            for key, label in _DECISIVE.items()
            if then.get(key) and then[key] != now[key]
        ),
        *(text for name, text in _edited(then, now) if name not in _FREE and name not in moved),
    ]


def _edited(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What differs between the search spaces of then and of now, by name."""
    before, after = _flat(_with_defaults(then.get("space", {}))), _flat(now["space"])
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            yield name, _told(f"{name} of space.yaml", before.get(name), after.get(name))


def _with_defaults(space: Mapping[str, Any]) -> Mapping[str, Any]:
    """A search space as it was written, with keys that were added since at their defaults."""
    try:
        return spaces.to_values(spaces.from_values(space, "provenance"))
    except InputError:
        return space


def _flat(space: Mapping[str, Any]) -> dict[str, Any]:
    """`section.name` to value."""
    flat: dict[str, Any] = {}
    for name, value in space.items():
        section = {f"{name}.{key}": v for key, v in value.items()} if isinstance(value, Mapping) else None
        flat |= {name: value} if section is None else section
    return flat


def _told(what: str, then: Any, now: Any) -> str:
    return f"{what} {_shown(then)}, now {_shown(now)}"


def _shown(value: Any) -> str:
    return "none" if value is None else str(value)


def warm_start(then: Mapping[str, Any], now: Mapping[str, Any], places: Collection[str]) -> str | None:
    """Why a search of `now` can learn nothing from the trials of `then`; None where it can.

    Over other data none says anything: quality is another, and so may be the steps' time and memory, by what
    is in it. Knobs may differ, and so may what is judged: only what trials show of memory and quality counts.
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
    differ = [_told(name, one, other) for name, (one, other) in pairs.items() if one != other]
    rule = "must be of the same workload, settings, data and hardware"
    return f"{rule}: {'; '.join(differ)}" if differ else None


def _warmed(session: Path, then: Mapping[str, Any], now: Mapping[str, Any], places: Collection[str]) -> str:
    """How a new session learns from the old one, where it can."""
    return "" if warm_start(then, now, places) else f" --warm-start {quoted(session)}"
