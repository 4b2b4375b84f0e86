"""Applies a search's settings to a script that uses Accelerate, and reports what it logs."""

from __future__ import annotations

import functools
import os
import sys
from typing import Any, Mapping  # noqa: UP035 - for Python 3.8

import autotune_wire
from autotune_imports import After, replace
from autotune_overrides import Overrides, replace_init

_UNMIXED = {"fp32": "highest", "tf32": "high"}  # torch's names for the precision of matrix products
_STEPS, _STEPS_OF_LAUNCHER = "gradient_accumulation_steps", "ACCELERATE_GRADIENT_ACCUMULATION_STEPS"
_COUNTED = {"samples", "tokens"}  # counted by the hook, from the beginning of a trial


def attach(after: After, overrides: Overrides, wire: autotune_wire.Wire) -> None:
    """Wraps the Accelerator's constructor once it is imported, and in a trial also its `log`."""

    def accelerators(module: Any) -> None:
        made = module.Accelerator
        if overrides.get("accelerator"):
            replace_init(made, "accelerator", overrides, _translated)
        if autotune_wire.SOCKET in os.environ:
            replace(made, "log", functools.partial(_log, wire))

    after.do("accelerate.accelerator", accelerators)


def _translated(known: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Translates the search's arguments `known` for Accelerate, which has no names for fp32 and tf32."""
    values, plugin = dict(known), given.get("gradient_accumulation_plugin")
    precision, steps = values.get("mixed_precision"), values.get(_STEPS)
    if precision in _UNMIXED:
        sys.modules["torch"].set_float32_matmul_precision(_UNMIXED[precision])
        values["mixed_precision"] = "no"
    if steps is not None and plugin is not None:
        plugin.num_steps, values[_STEPS] = steps, 1  # only 1 is allowed beside a plugin
    elif steps is not None:
        os.environ[_STEPS_OF_LAUNCHER] = str(steps)  # would override the argument
    return values


def _log(
    wire: autotune_wire.Wire, log: Any, self: Any, values: Mapping[str, Any], *args: Any, **kwargs: Any
) -> None:
    """Logs by `Accelerator.log`, and reports the numbers as a record even if no tracker is set up."""
    scalars = {k: v for k, v in values.items() if _is_scalar(v) and k not in _COUNTED}
    if scalars and not autotune_wire.rank():
        wire.tell({"record": scalars})
    log(self, values, *args, **kwargs)


def _is_scalar(value: Any) -> bool:
    return isinstance(value, (int, float)) or (hasattr(value, "item") and getattr(value, "ndim", 1) == 0)
