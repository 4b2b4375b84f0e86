"""Decides which calls of an optimizer, or which backward passes, are a training's steps. Pure: no torch."""

from __future__ import annotations

import weakref
from typing import Any

_OTHERS = 20  # passes in a row that end in a step of another optimizer: GANs make up to ten
_UNSEEN = 16  # steps in a row without a backward pass that is seen
_BY_HAND = 10  # passes: some scripts make a few before they train, for a summary of the model say


class Steps:
    """Counts backward passes, and picks the optimizer whose steps are the training's.

    That is the first one that steps. Another one takes over if that is gone, or has had no part in many
    passes.
    """

    def __init__(self) -> None:
        self.passes = 0
        self._leader: Any = _nothing  # a reference to the optimizer whose steps count
        self._ended_at = -1  # the pass of the last step
        self._others, self._other_at = 0, -1  # passes without the leader, the last of them
        self._unseen = 0
        self._has_optimizer = False

    def made(self) -> None:
        """Notes that the script has made an optimizer."""
        self._has_optimizer = True

    def passed(self) -> bool:
        """Notes the end of a backward pass; returns True if passes are the steps: there is no optimizer."""
        self.passes += 1
        return not self._has_optimizer and self.passes >= _BY_HAND

    def stepped(self, optimizer: Any) -> bool:
        """Returns True if this call of an optimizer ends a step of the training.

        A second call after the same pass ends none: optimizers that step within a pass, one for each
        parameter, make one step. If passes are not seen at all (`torch.func`, the replay of a CUDA graph),
        each call does.
        """
        self._has_optimizer = True
        if self._leader() is not optimizer and not self._takes_over(optimizer):
            return False
        self._unseen = self._unseen + 1 if self.passes == self._ended_at else 0
        if 0 < self._unseen <= _UNSEEN and self.passes:
            return False
        self._ended_at, self._others = self.passes, 0
        return True

    def _takes_over(self, optimizer: Any) -> bool:
        if self._leader() is not None:
            self._others += self._other_at != self.passes
            self._other_at = self.passes
            if self._others <= _OTHERS:
                return False
        self._leader = weakref.ref(optimizer)
        return True


def _nothing() -> None:
    """Stands for a reference to nothing."""
