"""Checks that a training uses its trial's GPU: speeds of the CPU must not be taken for the GPU's."""

from __future__ import annotations

import os
import sys
from typing import Any

import autotune_wire

_LONGEST = 100  # characters of CUDA's error, before the advice


def tell_if_lost(wire: autotune_wire.Wire, optimizer: Any = None) -> None:
    """Tells the tuner if torch cannot use the trial's GPU, or if `optimizer` trains on the CPU."""
    torch: Any = sys.modules.get("torch")
    if autotune_wire.GPUS not in os.environ or torch is None:
        return
    why = _why_lost(torch)
    if why is None and optimizer is not None and not _is_used(torch.cuda, optimizer):
        why = "the script trains on the CPU, but torch can use the trial's GPU: train on that"
    if why is not None:
        wire.tell({"gpu_lost": f"{why}, or give trials no GPU: --gpus-per-trial 0"})


def _why_lost(torch: Any) -> str | None:
    if torch.cuda.is_initialized():
        return None
    build = f"torch {torch.__version__} in {sys.executable}"
    if torch.version.cuda is None:
        return f"{build} is a build without CUDA: install one with it"
    try:
        torch.cuda.init()
    except Exception as error:  # noqa: BLE001 - whatever CUDA says is the answer
        message = str(error)[:_LONGEST].split(". ")[0].split("\n")[0] or type(error).__name__
        return f"{build} cannot use the trial's GPU: {message}: see nvidia-smi"
    return None


def _is_used(cuda: Any, optimizer: Any) -> bool:
    """Returns True if this process has tensors on a GPU, even if the optimizer's are on the CPU."""
    trained = (parameter for group in optimizer.param_groups for parameter in group["params"])
    return any(p.is_cuda for p in trained) or any(map(cuda.max_memory_reserved, range(cuda.device_count())))
