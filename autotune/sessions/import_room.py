"""Rejects a memory limit that is too small for importing torch."""

import subprocess
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from autotune.core import units
from autotune.core.errors import InputError
from autotune.sessions import option_values
from autotune.workloads.base import Workload
from autotune.workloads.command.calls import Call

_TIMEOUT_S = 120.0
_IMPORTED = """
import torch
for line in open("/proc/self/status"):
    if line.startswith("{}:"):
        print(line.split()[1])
"""
# Field of /proc/self/status that a trial's limit counts: resident memory with a GPU, else reserved memory.
_ON_GPU, _ON_CPU = "RssAnon", "VmData"


def require(given: str | None, workload: Workload, settings: Mapping[str, Any], gpus: float) -> None:
    """Raises InputError if a trial with `settings` cannot import torch within the limit `given`."""
    limit_bytes = option_values.size_bytes("--memory-limit", given)
    if limit_bytes is None or (python := workload.python_with_torch(settings)) is None:
        return
    needed_bytes = taken_bytes(python, on_gpu=gpus > 0)
    if needed_bytes is not None and needed_bytes > limit_bytes:
        figure = units.format_bytes(needed_bytes)
        raise InputError(f"--memory-limit {given}: importing torch alone takes {figure} here")


def taken_bytes(python: Call, *, on_gpu: bool) -> int | None:
    """Returns the bytes that a process of `python` takes after importing torch; None if that fails."""
    measure = _IMPORTED.format(_ON_GPU if on_gpu else _ON_CPU)
    with suppress(OSError, subprocess.TimeoutExpired, ValueError, IndexError):
        done = subprocess.run(  # noqa: S603 - the Python that the trials use
            [*python.arguments, "-c", measure],
            cwd=python.directory,
            env=python.environment,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        return 1024 * int(done.stdout.split()[-1])
    return None
