"""What is tuned: a function `fit(settings, workdir)`, or a command, and what is known about it besides.

Imports `core`; `r2gen` alone imports the trainer.
Starts no training.
"""

import importlib.util
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from autotune.core import units
from autotune.core.errors import InputError, instead
from autotune.core.settings import COMMON, Knowledge
from autotune.workloads.base import Workload
from autotune.workloads.command import spec
from autotune.workloads.program import Program

__all__ = [
    "BUILTIN",
    "Program",
    "Workload",
    "evaluation_setting",
    "known_settings",
    "label",
    "load",
    "located",
    "named",
]

BUILTIN = "r2gen"
_OWN_KEYS = {"function": "call", "r2gen": None}  # what says which one, where there are several


def load(value: str | Mapping[str, Any]) -> Workload:
    """The workload that a search space calls `value`, to be run.

    That is the built-in one, an entry point `package.module:function`, or a mapping with its kind and what
    that kind takes. Raises InputError where it is none, or its code cannot be found.
    """
    name = label(value)
    if name in {BUILTIN, spec.KIND}:
        return named(value)
    module, _, function = name.partition(":")
    if not function.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        raise InputError(f"workload: {BUILTIN}, or an entry point package.module:function: got {name!r}")
    if not _exists(module):
        raise InputError(
            f"workload {name}: there is no module {module} on the Python path: run this in the directory "
            "that holds it, or add that to PYTHONPATH"
        )
    return named(name)


def label(value: str | Mapping[str, Any]) -> str:
    """What a workload is called where there is a line for it; raises InputError for a mapping of no kind."""
    if isinstance(value, str):
        return value
    kind, kinds = value.get("kind"), (*_OWN_KEYS, spec.KIND)
    if kind not in kinds:
        raise InputError(
            f"workload.kind: one of {', '.join(kinds)}: got {units.shown(kind)}{instead(str(kind), kinds)}"
        )
    return spec.KIND if kind == spec.KIND else _one_of_its_kind(value, str(kind))


def _one_of_its_kind(value: Mapping[str, Any], kind: str) -> str:
    """What the key says that a kind has beside its name."""
    own = _OWN_KEYS[kind]
    keys = ["kind", *([own] if own else [])]
    if unknown := sorted(set(map(str, value)) - set(keys)):
        raise InputError(f"workload.{unknown[0]}: no such key{instead(unknown[0], keys)}")
    if own is None:
        return kind
    if not isinstance(called := value.get(own), str):
        raise InputError(f"workload.{own}: text is required for kind: {kind}: got {units.shown(called)}")
    return called


def located(value: Any, directory: Path) -> Any:
    """`value` with its paths absolute, of which relative ones are below the `directory` of a search space.

    What is no workload is left as it is, for `load` to refuse.
    """
    is_command = isinstance(value, Mapping) and value.get("kind") == spec.KIND
    return spec.located(value, directory) if is_command else value


@cache
def known_settings(name: str) -> Knowledge:
    """What is known of the settings of the workload called `name`, which `load` need not find."""
    return COMMON.with_own(named(name).known_settings)


@cache
def evaluation_setting(name: str) -> str | None:
    """The setting of the workload called `name` that says after how many samples it is evaluated."""
    return named(name).evaluation_setting


def named(value: str | Mapping[str, Any]) -> Workload:
    """What is known of the workload called `value`, whose code need not be here: to show what it has done."""
    name = label(value)
    if not isinstance(value, str) and name == spec.KIND:
        from autotune.workloads.command.workload import CommandWorkload  # noqa: PLC0415 - it is slow

        return CommandWorkload.of(value, Path())
    if name != BUILTIN:
        return Workload(name)
    from autotune.workloads.r2gen import R2GenWorkload  # noqa: PLC0415 - it imports the trainer

    return R2GenWorkload()


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError, AttributeError):  # a package that is none, or __main__
        return False
