"""Whether two checkpoints are equal."""

from typing import Any

import torch


def same_state(one: Any, other: Any) -> bool:
    """Whether they are, to the last bit."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same_state(one[k], other[k]) for k in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same_state, one, other))
    return bool(one == other)
