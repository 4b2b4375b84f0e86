"""Counts the floating-point operations of a training's first steps, and then leaves it alone.

As torch.utils.flop_counter does, whose formulas these are: of matrix products, convolutions and attention, a
multiplication and an addition being two. What a checkpoint computes again counts again: they are those of
the hardware, and not of the model alone.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections import Counter
from typing import Any

_STEPS = 2  # the first ones after the first: they are none of the steady state anyway
_KINDS = {"float64": "fp64", "bfloat16": "bf16", "float16": "fp16"}
_DISPATCH = "torch.utils._python_dispatch"
_OF_CPU = "_for_cpu"  # attention, which has formulas for GPUs alone


class Flops:
    """What each step has computed, by the kind of its numbers: fp64, fp32, tf32, bf16, fp16, fp8.

    Of a compiled training nothing is known: what is counted are calls from Python.
    """

    def __init__(self) -> None:
        self._left = _STEPS
        self._mode: Any = None
        # A process forked from one that trains is a loader's worker, or whatever else: it does not count.
        os.register_at_fork(after_in_child=self.leave)

    def leave(self) -> None:
        """Counts no more."""
        if self._mode is not None:
            _leave(self._mode)
        self._left, self._mode = 0, None

    @property
    def is_done(self) -> bool:
        return not self._left

    def stepped(self) -> dict[str, int]:
        """What the step has computed that has just ended in this thread; nothing where it was not counted."""
        if self.is_done:
            return {}
        try:
            found = self._counted()
        except Exception:  # noqa: BLE001 - whatever torch has changed, a training is not to end of it
            self._left, found = 0, {}
        return found

    def _counted(self) -> dict[str, int]:
        found = {}
        if self._mode is not None:
            self._left -= 1
            found = _leave(self._mode)
            self._mode = None
        if not self.is_done:
            self._mode = _entered()
        if self._mode is None:
            self._left = 0
        return found


def _entered() -> Any:
    """What counts from now on in this thread; None where it could not, or would be in the way."""
    torch: Any = sys.modules["torch"]
    dynamo: Any = sys.modules.get("torch._dynamo.utils")
    if dynamo is not None and dynamo.counters["frames"]["total"]:
        return None
    registry = importlib.import_module("torch.utils.flop_counter").flop_registry
    formulas = {str(packet): formula for packet, formula in registry.items()}
    dispatch: Any = importlib.import_module(_DISPATCH)

    class Mode(dispatch.TorchDispatchMode):  # type: ignore[misc]
        supports_higher_order_operators = True

        def __init__(self) -> None:
            super().__init__()
            self.counted: Counter[str] = Counter()
            self.is_on = True

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = str(getattr(func, "_overloadpacket", func))
            if types and name in _QUERIES:
                return NotImplemented
            returned = func(*args, **(kwargs or {}))
            formula = formulas.get(name.replace(_OF_CPU, "")) if self.is_on else None
            if formula is not None:
                try:
                    flops = formula(*args, **(kwargs or {}), out_val=returned)
                    self.counted[_kind(torch, name, args)] += int(flops)
                except Exception:  # noqa: BLE001 - a formula that does not know this form
                    self.is_on = False
            return returned

    mode = Mode()
    mode.__enter__()
    return mode


# What a tensor of another layout asks of itself, which is no operation.
_QUERIES = frozenset(
    f"aten.{name}"
    for name in (
        *("sym_is_contiguous", "is_contiguous", "is_strides_like_format", "is_non_overlapping_and_dense"),
        *("size", "sym_size", "stride", "sym_stride", "storage_offset", "sym_storage_offset"),
        *("numel", "sym_numel", "dim"),
    )
) | {"prim.layout"}


def _leave(mode: Any) -> dict[str, int]:
    """What was counted; nothing where a formula was lacking.

    A mode that something was entered after stays, and does nothing any more.
    """
    found = dict(mode.counted) if mode.is_on else {}
    mode.is_on = False
    if sys.modules[_DISPATCH]._get_current_dispatch_mode() is mode:
        mode.__exit__(None, None, None)
    return found


def _kind(torch: Any, name: str, args: Any) -> str:
    """What the numbers are that an operation multiplies."""
    tensor = next(value for value in args if isinstance(value, torch.Tensor))
    dtype = str(tensor.dtype).replace("torch.", "")
    if dtype.startswith("float8") or type(tensor).__name__.startswith("Float8"):
        return "fp8"
    if dtype != "float32":
        return _KINDS.get(dtype, dtype)
    is_cuda = tensor.device.type == "cuda"
    return "tf32" if is_cuda and _allows_tf32(torch, is_convolution="conv" in name) else "fp32"


def _allows_tf32(torch: Any, *, is_convolution: bool) -> bool:
    backend = torch.backends.cudnn if is_convolution else torch.backends.cuda.matmul
    try:
        return bool(backend.allow_tf32)
    except RuntimeError:  # the newer words for it were used, and the older ones may not be asked then
        return str(backend.conv.fp32_precision if is_convolution else backend.fp32_precision) == "tf32"
