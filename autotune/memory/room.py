"""GPU memory that a CUDA context leaves for tensors. Pure."""

from collections.abc import Iterable

from autotune.core.trial import Trial

CONTEXT_BYTES = 600 * 2**20  # CUDA context with kernels, until a trial has measured it


def context_bytes(trials: Iterable[Trial]) -> int:
    """Returns the largest measured GPU memory of a process outside its tensors, or a default."""
    return max((t.measurement.context_bytes or 0 for t in trials), default=0) or CONTEXT_BYTES


def beside_context(share_bytes: float, context_bytes: int) -> float:
    """Returns the part of the share that the context leaves, but at least half of the share."""
    return max(share_bytes / 2, share_bytes - context_bytes)


def limit_bytes(share_bytes: float, context_bytes: int, fraction: float) -> int:
    """Returns the memory limit of a process on its share of a GPU.

    Tensors may take a `fraction` of the limit; the rest is for the context. If the context needs more than
    that, the limit is lowered until both fit into the share.
    """
    return int(min(share_bytes, beside_context(share_bytes, context_bytes) / fraction))
