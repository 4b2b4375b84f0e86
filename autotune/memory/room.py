"""What tensors may take of a GPU in addition to the CUDA context. Pure."""

from collections.abc import Iterable

from autotune.core.trial import Trial

CONTEXT_BYTES = 600 * 2**20  # of a process on a GPU, with its kernels, until a trial has shown it


def context_bytes(trials: Iterable[Trial]) -> int:
    """What a process takes of its GPU besides its tensors, the most that was seen."""
    return max((t.measurement.context_bytes or 0 for t in trials), default=0) or CONTEXT_BYTES


def beside_context(share_bytes: float, context_bytes: int) -> float:
    """What is left for tensors; half of the share at least, or there is no use in trying."""
    return max(share_bytes / 2, share_bytes - context_bytes)


def limit_bytes(share_bytes: float, context_bytes: int, fraction: float) -> int:
    """What a process may take of its share of a GPU, whose tensors may take a `fraction` of it.

    What this leaves is for the context: where that needs more, the limit is so much lower that it has it.
    """
    return int(min(share_bytes, beside_context(share_bytes, context_bytes) / fraction))
