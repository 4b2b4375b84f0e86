"""What is tuned: a generator `fit(config, workdir)`, and what is known about it besides.

Imports `core`; `r2gen` alone imports the trainer.
Starts no training.
"""

import importlib.util
from functools import cache

from autotune.core.errors import InputError
from autotune.core.settings import COMMON, Knowledge
from autotune.workloads.base import Workload
from autotune.workloads.program import Program

__all__ = ["BUILTIN", "Program", "Workload", "known_settings", "load", "named"]

BUILTIN = "r2gen"


def load(name: str) -> Workload:
    """The workload called `name`, to be run: the built-in one, or an entry point `package.module:function`.

    Raises InputError where its module cannot be found.
    """
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


@cache
def known_settings(name: str) -> Knowledge:
    """What is known of the settings of the workload called `name`, which `load` need not find."""
    return COMMON.with_own(named(name).known_settings)


def named(name: str) -> Workload:
    """What is known of the workload called `name`, whose code need not be here: to show what it has done."""
    if name != BUILTIN:
        return Workload(name)
    from autotune.workloads.r2gen import R2GenWorkload  # noqa: PLC0415 - it imports the trainer

    return R2GenWorkload()


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError, AttributeError):  # a package that is none, or __main__
        return False
