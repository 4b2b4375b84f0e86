"""Finds the workload that a search space specifies, by name or by kind."""

import importlib.util
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

from autotune.core import units
from autotune.core.errors import InputError, did_you_mean
from autotune.core.settings import COMMON, Knowledge
from autotune.workloads import code
from autotune.workloads.base import Cadence, Workload
from autotune.workloads.command import spec
from autotune.workloads.frameworks.known import FRAMEWORKS

BUILTIN = "r2gen"
_RUN = (spec.KIND, *FRAMEWORKS)  # the kinds that run a command line


def load(value: str | Mapping[str, Any]) -> Workload:
    """Returns the workload to run that `value` specifies; raises InputError if it is none, or has no code."""
    name = label(value)
    if name in {BUILTIN, *_RUN}:
        return named(value)
    module, _, function = name.partition(":")
    if not function.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        rule = f"must be {BUILTIN}, or an entry point package.module:function"
        raise InputError(f"workload: {rule}, got {name!r}")
    here = look_here_last()
    if code.find_spec(module) is None:
        raise InputError(
            f"workload {name}: there is no module {module} on the Python path; run this in the directory "
            "that holds it, or add that to PYTHONPATH"
        )
    top = module.partition(".")[0]
    first, own = _origin(importlib.util.find_spec(top)), _origin(PathFinder.find_spec(top, here))
    if own and first != own:
        raise InputError(
            f"workload {name}: there is another module {top} ({first}), which comes first; rename yours, "
            "or put its directory on PYTHONPATH"
        )
    return named(name)


def label(value: str | Mapping[str, Any]) -> str:
    """Returns a workload's one-line name; raises InputError for a mapping of unknown kind."""
    if isinstance(value, str):
        return value
    if (kind := value.get("kind")) not in _RUN:
        raise InputError(
            f"workload.kind: must be one of {', '.join(_RUN)}, got {units.quote(kind)}"
            f"{did_you_mean(str(kind), _RUN)}"
        )
    return str(kind)


def with_absolute_paths(value: Any, directory: Path) -> Any:
    """Returns `value` with relative paths below `directory` made absolute; leaves errors to `load`."""
    is_run = isinstance(value, Mapping) and value.get("kind") in _RUN
    return spec.with_absolute_paths(value, directory) if is_run else value


def completed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the `values` of a search space with the default roles and words of its kind of workload."""
    workload = values.get("workload")
    framework = FRAMEWORKS.get(str(workload.get("kind"))) if isinstance(workload, Mapping) else None
    return framework.completed(values) if framework else dict(values)


@cache
def known_settings(name: str) -> Knowledge:
    """Returns the knowledge of settings of the workload `name`, whose code need not exist."""
    framework = FRAMEWORKS.get(name)
    return COMMON.with_own(framework.known if framework else named(name).known_settings)


@cache
def cadence(name: str) -> Cadence:
    """Returns the evaluation cadence of the workload `name`, whose code need not exist."""
    framework = FRAMEWORKS.get(name)
    return framework.cadence if framework else named(name).cadence


def named(value: str | Mapping[str, Any]) -> Workload:
    """Returns the workload for `value`, even if its code is missing, to show a past session."""
    name = label(value)
    if not isinstance(value, str) and name in FRAMEWORKS:
        from autotune.workloads.frameworks.workload import FrameworkWorkload  # noqa: PLC0415 - slow

        return FrameworkWorkload.parse(value, Path())
    if not isinstance(value, str) and name == spec.KIND:
        from autotune.workloads.command.workload import CommandWorkload  # noqa: PLC0415 - slow

        return CommandWorkload.parse(value, Path())
    if name != BUILTIN:
        return Workload(name)
    from autotune.workloads.r2gen import R2GenWorkload  # noqa: PLC0415 - imports the trainer

    return R2GenWorkload()


def look_here_last() -> list[str]:
    """Puts the working directory last on `sys.path`, so that it shadows no module; returns the new entry."""
    with suppress(OSError):  # the directory is gone
        here = str(Path.cwd())
        if not sys.flags.safe_path and here not in os.environ.get("PYTHONPATH", "").split(os.pathsep):
            sys.path[:] = [*(place for place in sys.path if place not in {"", here}), here]
            return [here]
    return []


def _origin(spec: ModuleSpec | None) -> Path | None:
    return Path(spec.origin).resolve() if spec and spec.origin else None
