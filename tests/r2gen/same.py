"""Comparison of two runs: their records without times, and their checkpoints."""

from collections.abc import Mapping
from typing import Any

import torch

_TIMES = {"data_s", "transfer_s", "forward_s", "backward_s", "optimizer_s"}


def untimed(record: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the record without the times of its step's phases."""
    return {name: value for name, value in record.items() if name not in _TIMES}


def same_state(one: Any, other: Any) -> bool:
    """Returns True if two checkpoints are bit-identical."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same_state(one[k], other[k]) for k in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same_state, one, other))
    return bool(one == other)
