"""What a search puts into a script that uses Accelerate, and what such a script logs."""

from __future__ import annotations

import functools
import inspect
import os
import sys
from typing import Any, Callable, Mapping  # noqa: UP035 - for Python 3.8

import autotune_wire
from autotune_imports import After
from autotune_overrides import Overrides

_UNMIXED = {"fp32": "highest", "tf32": "high"}  # the precision of products of matrices, as torch calls it

_COUNTED = {"samples", "tokens"}  # by the hook, from the beginning of a trial


def attach(after: After, overrides: Overrides, wire: autotune_wire.Wire) -> None:
    """Wraps what makes an Accelerator, and in a trial what logs, as soon as it is imported."""

    def accelerators(module: Any) -> None:
        made = module.Accelerator
        if overrides.of("accelerator"):
            made.__init__ = _around_init(made.__init__, overrides)
        if autotune_wire.SOCKET in os.environ:
            made.log = _around_log(made.log, wire)

    after.do("accelerate.accelerator", accelerators)


def _around_init(init: Callable[..., None], overrides: Overrides) -> Callable[..., None]:
    takes = inspect.signature(init)

    @functools.wraps(init)
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            given = takes.bind(self, *args, **kwargs)
        except TypeError:  # the script's own mistake: it is to be told by its name
            init(self, *args, **kwargs)
            return
        taken = {name: v for name, v in overrides.of("accelerator").items() if name in takes.parameters}
        given.arguments.update(_translated(taken, given.arguments))
        init(*given.args, **given.kwargs)
        overrides.tell("accelerator", taken)

    return made


def _translated(taken: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """`taken` as Accelerate knows it, which has no word for precisions of one format alone."""
    values, plugin = dict(taken), given.get("gradient_accumulation_plugin")
    precision = values.get("mixed_precision")
    if precision in _UNMIXED:
        sys.modules["torch"].set_float32_matmul_precision(_UNMIXED[precision])
        values["mixed_precision"] = "no"
    if plugin is not None and "gradient_accumulation_steps" in values:
        plugin.num_steps = values.pop("gradient_accumulation_steps")
    return values


def _around_log(log: Callable[..., None], wire: autotune_wire.Wire) -> Callable[..., None]:
    """What a script logs is a record, where it has numbers; trackers need not be there."""

    @functools.wraps(log)
    def logged(self: Any, values: Mapping[str, Any], *args: Any, **kwargs: Any) -> None:
        scalars = {k: v for k, v in values.items() if _is_scalar(v) and k not in _COUNTED}
        if scalars and not autotune_wire.rank():
            wire.tell({"record": scalars})
        log(self, values, *args, **kwargs)

    return logged


def _is_scalar(value: Any) -> bool:
    return isinstance(value, (int, float)) or (hasattr(value, "item") and getattr(value, "ndim", 1) == 0)
