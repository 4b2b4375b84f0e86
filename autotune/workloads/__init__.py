"""What is tuned: a generator `fit(config, workdir)`, and what is known about it besides."""

import importlib.util

from autotune.errors import InputError
from autotune.workloads.base import Workload
from autotune.workloads.program import Program

__all__ = ["BUILTIN", "Program", "Workload", "load"]

BUILTIN = "r2gen"


def load(name: str) -> Workload:
    """The workload called `name`: the built-in one, or an entry point `package.module:function`."""
    if name == BUILTIN:
        from autotune.workloads.r2gen import R2GenWorkload  # noqa: PLC0415 - it imports torch

        return R2GenWorkload()
    module, _, function = name.partition(":")
    if not function.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        raise InputError(f"workload: {BUILTIN}, or an entry point package.module:function: got {name!r}")
    if not _exists(module):
        raise InputError(f"workload {name}: there is no module {module} on the Python path")
    return Workload(name)


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError, AttributeError):  # a package that is none, or __main__
        return False
