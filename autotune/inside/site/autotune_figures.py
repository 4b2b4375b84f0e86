"""What a step of a PyTorch script shows of itself: its loss, its memory, whether it is like others."""

from __future__ import annotations

import math
import sys
import time
from typing import Any

_EVERY_S = 1.0  # the loss has to be fetched from the GPU, and the memory's figures take a while
_SOON_S = 0.05  # at first: a trial may be over within a second
_clock_s = time.monotonic  # kept here: a script that replaces the module's clock replaces its own alone


class Figures:
    """The figures of the steps of this process."""

    def __init__(self) -> None:
        self._peak_bytes = 0  # on the host
        self._memory_s = self._loss_s = -math.inf
        self._loss: Any = None
        self._rate: float | None = None
        self._loss_every_s = 0.0
        self._compilations = compilations()

    def note_loss(self, loss: Any) -> None:
        """A backward pass begins at `loss`, a tensor or several."""
        if _clock_s() - self._loss_s >= self._loss_every_s:
            self._loss = (loss if hasattr(loss, "shape") else loss[0]).detach()

    def of_step(self, scale: Any, optimizer: Any = None, *, has_settled: bool) -> dict[str, Any]:
        """Returns the figures of the step that ends now; `scale()` is what its loss was multiplied by.

        Its loss and the memory are among them once a second, the learning rate of the `optimizer` that has
        made it if it has changed.
        """
        before, self._compilations = self._compilations, compilations()
        figures: dict[str, Any] = self._memory_if_due()
        if not has_settled:
            figures["queued"] = True
        if before != self._compilations:
            figures["compiling"] = True
        rate = _rate(optimizer)
        if rate is not None and rate != self._rate:
            self._rate = rate
            figures["rate"] = rate
        if has_settled and self._loss is not None:  # or else it would be waited for
            figures["loss"] = float(self._loss.float().mean()) / scale()
            self._loss, self._loss_s = None, _clock_s()
            self._loss_every_s = self._until_next_s(figures["loss"])
        return figures

    def _until_next_s(self, loss: float) -> float:
        """How long the next loss may be left unread: not at all, once one is no number."""
        return min(_EVERY_S, max(_SOON_S, 2 * self._loss_every_s)) if math.isfinite(loss) else 0.0

    def _memory_if_due(self) -> dict[str, int]:
        if _clock_s() - self._memory_s < _EVERY_S:
            return {}
        self._memory_s = _clock_s()
        return _gpu_memory() or self._host_memory()

    def _host_memory(self) -> dict[str, int]:
        """Pages of files that are mapped do not count: the kernel takes them back when it needs room."""
        self._peak_bytes = max(self._peak_bytes, host_bytes("VmHWM") - host_bytes("RssFile"))
        return {"memory_script_bytes": self._peak_bytes}


def _rate(optimizer: Any) -> float | None:
    """Returns the highest learning rate of an optimizer; None for one on a GPU, which would be waited for."""
    groups = getattr(optimizer, "param_groups", ())
    rates = [group.get("lr") for group in groups]
    return max((float(rate) for rate in rates if isinstance(rate, (int, float))), default=None)


def trained_parameters(optimizer: Any) -> int:
    """How many numbers an optimizer trains, those of this process; 0 where that cannot be counted.

    A lazy module that no step has used has none yet.
    """
    try:
        is_lazy = sys.modules["torch"].nn.parameter.is_lazy
        found = (parameter for group in optimizer.param_groups for parameter in group["params"])
        return sum(int(p.numel()) for p in found if p.requires_grad and not is_lazy(p))
    except Exception:  # noqa: BLE001 - a figure of a report: no training is to end of it
        return 0


def _gpu_memory() -> dict[str, int]:
    """The allocator's figures in bytes; nothing where it has never been used."""
    cuda: Any = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or not cuda.is_initialized() or not cuda.max_memory_allocated():
        return {}
    return {
        "memory_allocated_bytes": cuda.memory_allocated(),
        "memory_reserved_bytes": cuda.memory_reserved(),
        "memory_peak_bytes": cuda.max_memory_allocated(),
        "memory_peak_reserved_bytes": cuda.max_memory_reserved(),
    }


def host_bytes(name: str) -> int:
    """A figure of /proc/self/status, 0 where it is not there."""
    try:
        with open("/proc/self/status", "rb") as lines:  # noqa: PTH123 - a script may have no pathlib yet
            found = [line for line in lines if line.startswith(name.encode() + b":")]
    except OSError:
        return 0
    return int(found[0].split()[1]) * 1024 if found else 0


def compilations() -> int:
    """How often torch has compiled something in this process, or tried to; 0 where it never was asked to."""
    counters: Any = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    return counters["frames"].get("total", 0) + counters["stats"].get("unique_graphs", 0) if counters else 0
