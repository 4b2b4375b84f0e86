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
from autotune.workloads.program import Program

__all__ = ["BUILTIN", "Program", "Workload", "known_settings", "label", "load", "located", "named"]

BUILTIN = "r2gen"
_KINDS = {"function": "call", "r2gen": ""}  # and the key that says which one, where there are several


def load(value: str | Mapping[str, Any]) -> Workload:
    """The workload that a search space calls `value`, to be run.

    That is the built-in one, an entry point `package.module:function`, or a mapping with its kind and what
    that kind takes. Raises InputError where it is none, or its code cannot be found.
    """
    name = label(value)
    if name == BUILTIN:
        return named(name)
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
    kind = value.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise InputError(
            f"workload.kind: one of {', '.join(_KINDS)}: got {units.shown(kind)}{instead(kind, _KINDS)}"
        )
    own = _KINDS[kind]
    if unknown := sorted(map(str, value.keys() - {"kind", own})):
        keys = [key for key in ("kind", own) if key]
        raise InputError(f"workload.{unknown[0]}: no such key{instead(unknown[0], keys)}")
    if own and not isinstance(value.get(own), str):
        raise InputError(
            f"workload.{own}: text is required for kind: {kind}: got {units.shown(value.get(own))}"
        )
    return str(value[own]) if own else kind


def located(value: str | Mapping[str, Any], directory: Path) -> str | Mapping[str, Any]:
    """`value` with the paths in it that are relative to the `directory` of the search space's file."""
    del directory
    return value


@cache
def known_settings(name: str) -> Knowledge:
    """What is known of the settings of the workload called `name`, which `load` need not find."""
    return COMMON.with_own(named(name).known_settings)


def named(value: str | Mapping[str, Any]) -> Workload:
    """What is known of the workload called `value`, whose code need not be here: to show what it has done."""
    if (name := label(value)) != BUILTIN:
        return Workload(name)
    from autotune.workloads.r2gen import R2GenWorkload  # noqa: PLC0415 - it imports the trainer

    return R2GenWorkload()


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError, AttributeError):  # a package that is none, or __main__
        return False
