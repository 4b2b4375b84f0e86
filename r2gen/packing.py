"""Packs the words of a padded batch of reports, so that padding is not computed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor


@dataclass(frozen=True)
class Packing:
    """The positions of words in a batch of reports, ordered by step and then by length of the report.

    A grid has every position, [B, T, ...]; a packed tensor only the N with words, [N, ...]. Longer reports
    come first, so that those still running at a step are the first ones of the step before.
    """

    batch: int
    length: int
    positions: Tensor  # int64 [N], in the grid [B, T] flattened
    running: Tensor  # int64 [T], reports at each step, on the host; their sum is N

    @classmethod
    def from_lengths(cls, lengths: Sequence[int], device: torch.device) -> Self:
        """Packs reports with these `lengths` in positions, each at least 1; computed on the host alone."""
        longest = max(lengths)
        order = torch.tensor(lengths).argsort(descending=True, stable=True)
        running = torch.tensor(lengths)[order] > torch.arange(longest)[:, None]  # [T, B]
        grid = order * longest + torch.arange(longest)[:, None]
        positions = grid[running].to(device, non_blocking=True)
        return cls(len(lengths), longest, positions, running.sum(1))

    @classmethod
    def full(cls, grid: Tensor) -> Self:
        """Packs every position of a `grid` [B, T, ...]."""
        batch, length = grid.shape[:2]
        return cls.from_lengths([length] * batch, grid.device)

    def pack(self, grid: Tensor) -> Tensor:
        return grid.flatten(0, 1).index_select(0, self.positions)

    def unpack(self, packed: Tensor) -> Tensor:
        """Returns the grid with `packed` at its positions and 0 elsewhere."""
        grid = packed.new_zeros(self.batch * self.length, *packed.shape[1:])
        grid = grid.index_copy(0, self.positions, packed)
        return grid.view(self.batch, self.length, *packed.shape[1:])


def lengths(targets: Tensor) -> list[int]:
    """Counts the ids in each row of `targets` [B, T] that the loss sums: every word, and the end token."""
    counts: list[int] = ((targets[:, :-1] > 0).sum(1) + 1).tolist()
    return counts
