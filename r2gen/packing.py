"""Which positions of a padded batch of reports are computed, and in which order."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor


@dataclass(frozen=True)
class Packing:
    """The positions of a batch of reports that hold words, step by step, in each the longest report first.

    A grid has a place for every position, [B, T, ...]; packed are only the N that hold words, [N, ...]. The
    reports that are still running at a step are the first ones of those that ran at the step before.
    """

    batch: int
    length: int
    positions: Tensor  # int64 [N], in the grid [B, T] flattened
    running: Tensor | tuple[int, ...]  # the reports at each step, on the host; they sum to N

    @classmethod
    def of(cls, lengths: Sequence[int], device: torch.device) -> Self:
        """The packing of reports with so many positions each, at least one; made on the host alone."""
        longest = max(lengths)
        order = torch.tensor(lengths).argsort(descending=True, stable=True)
        running = torch.tensor(lengths)[order] > torch.arange(longest)[:, None]  # [T, B]
        grid = order * longest + torch.arange(longest)[:, None]
        positions = grid[running].to(device, non_blocking=True)
        return cls(len(lengths), longest, positions, running.sum(1))

    @classmethod
    def whole(cls, grid: Tensor) -> Self:
        """Every position of a `grid` [B, T, ...]."""
        batch, length = grid.shape[:2]
        return cls.of([length] * batch, grid.device)

    def unrolled(self) -> Self:
        """The same, for a program that torch.compile makes for just these numbers of running reports."""
        running = self.running.tolist() if isinstance(self.running, Tensor) else self.running
        return replace(self, running=tuple(running))

    def pack(self, grid: Tensor) -> Tensor:
        return grid.flatten(0, 1).index_select(0, self.positions)

    def unpack(self, packed: Tensor) -> Tensor:
        """The grid with `packed` at its places and 0 elsewhere."""
        grid = packed.new_zeros(self.batch * self.length, *packed.shape[1:])
        grid = grid.index_copy(0, self.positions, packed)
        return grid.view(self.batch, self.length, *packed.shape[1:])


def lengths(targets: Tensor) -> list[int]:
    """How many ids of each of `targets` [B, T] the loss sums: every word, and the end that follows."""
    counts: list[int] = ((targets[:, :-1] > 0).sum(1) + 1).tolist()
    return counts
