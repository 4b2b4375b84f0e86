"""Counts the floating-point operations of a training's first steps.

It uses the formulas of torch.utils.flop_counter for matrix products, convolutions and attention, in which a
multiply-add counts as two. Recomputation by activation checkpointing counts too: these are the FLOPs of the
hardware, not of the model.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections import Counter
from typing import Any

_STEPS = 2  # from the second on: these are not part of the steady state anyway
_KINDS = {"float64": "fp64", "bfloat16": "bf16", "float16": "fp16"}
_DISPATCH = "torch.utils._python_dispatch"
_OF_CPU = "_for_cpu"  # suffix of attention on the CPU, whose formulas exist only for GPUs


class Flops:
    """Counts the FLOPs of each step by number format: fp64, fp32, tf32, bf16, fp16, fp8.

    A compiled training cannot be counted, because only calls from Python are seen.
    """

    def __init__(self) -> None:
        self._left = _STEPS
        self._mode: Any = None
        # A fork of the training process is a loader worker or the like, and does not count.
        os.register_at_fork(after_in_child=self.leave)

    def leave(self) -> None:
        """Stops counting."""
        if self._mode is not None:
            _leave(self._mode)
        self._left, self._mode = 0, None

    @property
    def is_done(self) -> bool:
        return not self._left

    def stepped(self) -> dict[str, int]:
        """Returns the FLOPs of the step that just ended in this thread, {} if they were not counted."""
        flops: dict[str, int] = {}
        if self.is_done:
            return flops
        try:
            if self._mode is not None:
                self._left -= 1
                flops, self._mode = _leave(self._mode), None
            if self._left:
                self._mode = _entered()
        except Exception:  # noqa: BLE001 - a change in torch must not end a training
            self._left, flops = 0, {}
        if self._mode is None:
            self._left = 0
        return flops


def _entered() -> Any:
    """Starts counting in this thread; returns the mode, None if it is impossible or hinders torch.compile."""
    torch: Any = sys.modules["torch"]
    if _has_compiled():
        return None
    registry = importlib.import_module("torch.utils.flop_counter").flop_registry
    formulas = {str(packet): formula for packet, formula in registry.items()}
    dispatch: Any = importlib.import_module(_DISPATCH)

    class Mode(dispatch.TorchDispatchMode):  # type: ignore[misc]
        supports_higher_order_operators = True

        @classmethod
        def ignore_compile_internals(cls) -> bool:
            """Returns True: otherwise torch.compile never compiles code that is first called in the mode."""
            return True

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
                except Exception:  # noqa: BLE001 - the formula does not support these arguments
                    self.is_on = False
            return returned

    mode = Mode()
    mode.__enter__()
    return mode


def _has_compiled() -> bool:
    dynamo: Any = sys.modules.get("torch._dynamo.utils")
    return dynamo is not None and bool(dynamo.counters["frames"]["total"])


# Queries of tensors with a custom layout about themselves, which are no operations.
_QUERIES = frozenset(
    f"aten.{name}"
    for name in (
        *("sym_is_contiguous", "is_contiguous", "is_strides_like_format", "is_non_overlapping_and_dense"),
        *("size", "sym_size", "stride", "sym_stride", "storage_offset", "sym_storage_offset"),
        *("numel", "sym_numel", "dim"),
    )
) | {"prim.layout"}


def _leave(mode: Any) -> dict[str, int]:
    """Ends counting, even if another mode is active too, and returns the counts.

    Returns {} if a formula failed, or if the step compiled something, whose operations were not seen.
    """
    flops = dict(mode.counted) if mode.is_on and not _has_compiled() else {}
    mode.is_on = False
    if sys.modules[_DISPATCH]._get_current_dispatch_mode() is mode:
        mode.__exit__(None, None, None)
    return flops


def _kind(torch: Any, name: str, args: Any) -> str:
    """Returns the number format that an operation multiplies in."""
    tensor = next(value for value in args if isinstance(value, torch.Tensor))
    dtype = str(tensor.dtype).replace("torch.", "")
    if dtype.startswith("float8") or type(tensor).__name__.startswith("Float8"):
        return "fp8"
    if dtype != "float32":
        return _KINDS.get(dtype, dtype)
    if tensor.device.type != "cuda":
        return "fp32"
    backend = torch.backends.cudnn if "conv" in name else torch.backends.cuda.matmul
    try:
        is_tf32 = backend.allow_tf32
    except RuntimeError:  # set by the newer API, after which the older one raises
        is_tf32 = (backend.conv if "conv" in name else backend).fp32_precision == "tf32"
    return "tf32" if is_tf32 else "fp32"
