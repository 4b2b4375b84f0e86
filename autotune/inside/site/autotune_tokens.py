"""Counts the non-padding tokens of a batch while it is on the CPU, where counting does not wait for a GPU."""

from __future__ import annotations

from typing import Any, Mapping  # noqa: UP035 - Python 3.8 cannot subscript the one of collections.abc

_ROWS = 2  # dimensions of a mask of tokens; one with more says which tokens attend to which
_padding: list[int] = []  # the padding token, if known


def pads_with(token: int | None) -> None:
    """Sets the padding token of the following batches, None if unknown."""
    _padding[:] = [] if token is None else [token]


def count(batch: Any) -> int | None:
    """Returns the tokens of a mapping with `input_ids` on the CPU, by its `attention_mask` if it has one."""
    if isinstance(batch, (list, tuple)) or not isinstance(batch, Mapping):  # the first test is the faster one
        return None
    ids: Any = batch.get("input_ids")
    mask: Any = batch.get("attention_mask")
    if getattr(getattr(ids, "device", None), "type", None) != "cpu":
        return None
    if mask is not None and mask.ndim == _ROWS:
        return int((mask != 0).sum())
    return int((ids != _padding[0]).sum()) if _padding else int(ids.numel())
