"""Figures of a PyTorch step: loss, memory, learning rate, FLOPs, and whether it compiled or has ended."""

from __future__ import annotations

import importlib
import math
import os
import sys
import time
from collections import Counter
from typing import Any, Iterable, Mapping  # noqa: UP035 - for Python 3.8

_EVERY_S = 1.0  # the loss must be fetched from the GPU, and memory figures are slow
_SOON_S = 0.05  # at first, because a trial may be over within a second
# Seconds and steps between waits for the GPU: many short steps may be queued within half a second.
_WAIT_EVERY_S, _WAIT_EVERY = 0.5, 16
_COUNTED = 2  # steps, from the second on: they are not part of the steady state anyway
_KINDS = {"float64": "fp64", "bfloat16": "bf16", "float16": "fp16"}
_DISPATCH = "torch.utils._python_dispatch"
_OF_CPU = "_for_cpu"  # suffix of attention on the CPU, whose formulas exist only for GPUs
# Queries of tensors with a custom layout about themselves, which are no operations.
_QUERIES = frozenset(
    f"aten.{name}"
    for name in (
        *("sym_is_contiguous", "is_contiguous", "is_strides_like_format", "is_non_overlapping_and_dense"),
        *("size", "sym_size", "stride", "sym_stride", "storage_offset", "sym_storage_offset"),
        *("numel", "sym_numel", "dim"),
    )
) | {"prim.layout"}
_clock_s = time.monotonic  # bound here, because a script may patch time.monotonic


class Figures:
    def __init__(self) -> None:
        self._peak_bytes = 0  # host memory
        self._memory_s = self._loss_s = -math.inf
        self._loss: Any = None
        self._rate: float | None = None
        self._loss_every_s = 0.0
        self._compilations = compilations()

    def note_loss(self, loss: Any) -> None:
        """Keeps the loss of a backward pass, a tensor or a sequence of them, if one is to be reported."""
        if _clock_s() - self._loss_s >= self._loss_every_s:
            self._loss = (loss if hasattr(loss, "shape") else loss[0]).detach()

    def step_figures(self, scaler: Any, optimizer: Any = None, *, has_settled: bool) -> dict[str, Any]:
        """Returns the figures of the step that ends now; a gradient `scaler`, if any, has scaled its loss."""
        before, self._compilations = self._compilations, compilations()
        figures: dict[str, Any] = self._memory_if_due()
        if not has_settled:
            figures["is_queued"] = True
        if before != self._compilations:
            figures["is_compiling"] = True
        rates = [group.get("lr") for group in getattr(optimizer, "param_groups", ())]
        # Without tensors, which may be on a GPU.
        rate = max((float(one) for one in rates if isinstance(one, (int, float))), default=None)
        if rate is not None and rate != self._rate:
            self._rate = rate
            figures["learning_rate"] = rate
        if has_settled and self._loss is not None:  # otherwise reading it would wait for the GPU
            scale = 1.0 if scaler is None else scaler.get_scale()
            loss = figures["train_loss"] = float(self._loss.float().mean()) / scale
            self._loss, self._loss_s = None, _clock_s()
            next_s = min(_EVERY_S, max(_SOON_S, 2 * self._loss_every_s))
            self._loss_every_s = next_s if math.isfinite(loss) else 0.0
        return figures

    def _memory_if_due(self) -> dict[str, int]:
        if _clock_s() - self._memory_s < _EVERY_S:
            return {}
        self._memory_s = _clock_s()
        cuda = used_cuda()
        if cuda and (of_gpu := of_allocator(cuda.memory_stats_as_nested_dict(busiest(cuda)))):
            return of_gpu
        # Without mapped files, whose pages the kernel can reclaim.
        self._peak_bytes = max(self._peak_bytes, host_bytes("VmHWM") - host_bytes("RssFile"))
        return {"memory_script_bytes": self._peak_bytes}


class Pace:
    """Tells if the GPU has finished the last step; waits rarely, because CPU and GPU then cannot overlap."""

    def __init__(self) -> None:
        self._waited_s, self._unwaited, self._wait_every = 0.0, 0, 1
        self._gpu: int | None = None

    def has_settled(self) -> bool:
        """Returns True if the GPU has finished the last step; now and then, waits until it has."""
        cuda = used_cuda()
        if cuda is None or is_capturing():
            return True
        self._unwaited += 1
        if self._gpu is None:
            self._gpu = busiest(cuda)
        if not cuda.current_stream(self._gpu).query():
            if _clock_s() - self._waited_s < _WAIT_EVERY_S and self._unwaited < self._wait_every:
                return False
            cuda.synchronize(self._gpu)
            self._wait_every = min(2 * self._wait_every, _WAIT_EVERY)  # often at first, for short trainings
        self._waited_s, self._unwaited = _clock_s(), 0
        return True

    def evaluated(self) -> None:
        """Notes an evaluation, after which waits are frequent again."""
        self._wait_every, self._gpu = 1, None


def used_cuda() -> Any:
    """Returns torch.cuda if this process uses it, else None."""
    cuda: Any = getattr(sys.modules.get("torch"), "cuda", None)
    return cuda if cuda is not None and cuda.is_initialized() else None


def is_capturing() -> bool:
    """Returns True if work is being captured into a CUDA graph, not executed: nothing may be queried then."""
    cuda = used_cuda()
    return cuda is not None and bool(cuda.is_current_stream_capturing())


def busiest(cuda: Any) -> int:
    """Returns the GPU that holds most of this process's memory, which need not be the current one."""
    gpus = range(cuda.device_count())
    return max(gpus, key=cuda.max_memory_reserved) if len(gpus) > 1 else 0


def cap(cuda: Any, cap_bytes: int, gpus: Iterable[int]) -> None:
    """Caps the allocator on `gpus`; a context is opened on each, and the current GPU stays."""
    for index in gpus:
        total_bytes = cuda.get_device_properties(index).total_memory  # NVML reports more
        with cuda.device(index):
            cuda.set_per_process_memory_fraction(min(1.0, cap_bytes / total_bytes), index)


def trained_parameters(optimizer: Any) -> int:
    """Returns how many parameters an optimizer trains in this process; 0 if unknown, as for lazy modules."""
    try:
        is_lazy = sys.modules["torch"].nn.parameter.is_lazy
        parameters = (parameter for group in optimizer.param_groups for parameter in group["params"])
        return sum(int(p.numel()) for p in parameters if p.requires_grad and not is_lazy(p))
    except Exception:  # noqa: BLE001 - a mere figure must not end a training
        return 0


def of_allocator(stats: Mapping[str, Any]) -> dict[str, int]:
    """Returns the figures of a GPU's allocator in bytes, from its nested `stats`; {} if it was never used."""
    if not stats or not stats["allocated_bytes"]["all"]["peak"]:
        return {}
    allocated, reserved = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
    return {
        "memory_allocated_bytes": allocated["current"],
        "memory_reserved_bytes": reserved["current"],
        "memory_peak_bytes": allocated["peak"],
        "memory_peak_reserved_bytes": reserved["peak"],
    }


def host_bytes(name: str) -> int:
    """Returns a figure of /proc/self/status in bytes, 0 if it is missing."""
    try:
        with open("/proc/self/status", "rb") as lines:  # noqa: PTH123 - a script may have no pathlib yet
            matches = [line for line in lines if line.startswith(name.encode() + b":")]
    except OSError:
        return 0
    return int(matches[0].split()[1]) * 1024 if matches else 0


def _dynamo_counters() -> Any:
    """Returns the counters of torch's compiler, None if it was never imported."""
    return getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)


def compilations() -> int:
    """Returns how often torch has compiled, or tried to, in this process."""
    counters = _dynamo_counters()
    return counters["frames"].get("total", 0) + counters["stats"].get("unique_graphs", 0) if counters else 0


class Flops:
    """Counts the FLOPs of a training's first steps by number format: fp64, fp32, tf32, bf16, fp16, fp8.

    Uses the formulas of torch.utils.flop_counter, in which a multiply-add counts as two. Recomputation by
    activation checkpointing counts: these are the FLOPs of the hardware, not of the model. Only calls from
    Python are seen, so a compiled training cannot be counted.
    """

    def __init__(self) -> None:
        self._left = _COUNTED
        self._mode: Any = None
        # A fork of the training process is a loader worker or the like, and does not count.
        os.register_at_fork(after_in_child=self.leave)

    def leave(self) -> None:
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
    counters = _dynamo_counters()
    return counters is not None and bool(counters["frames"]["total"])


def _leave(mode: Any) -> dict[str, int]:
    """Ends counting; returns the counts, {} if a formula failed, or if the step compiled something."""
    flops = dict(mode.counted) if mode.is_on and not _has_compiled() else {}
    mode.is_on = False
    if sys.modules[_DISPATCH]._get_current_dispatch_mode() is mode:  # another may be active too
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
