"""The tokens of a batch that are no padding: counted before it goes to a GPU, they cost no waiting."""

from __future__ import annotations

from typing import Any, Mapping  # noqa: UP035 - Python 3.8 cannot subscript the one of collections.abc

_ROWS = 2  # dimensions of a mask that says it token by token; one of more says which token attends to which
_padding: list[int] = []  # the tokens that only fill a batch up


def pads_with(token: int | None) -> None:
    """The batches to come are padded with `token`; None where unknown."""
    _padding[:] = [] if token is None else [token]


def count(batch: Any) -> int | None:
    """The tokens of a mapping that has `input_ids`, by its `attention_mask` where it has one.

    None for any other batch, and for one that lies on a device already.
    """
    if isinstance(batch, (list, tuple)) or not isinstance(batch, Mapping):  # the former is said at once
        return None
    ids: Any = batch.get("input_ids")
    mask: Any = batch.get("attention_mask")
    if getattr(getattr(ids, "device", None), "type", None) != "cpu":
        return None
    if mask is not None and mask.ndim == _ROWS:
        return int((mask != 0).sum())
    return int((ids != _padding[0]).sum()) if _padding else int(ids.numel())
