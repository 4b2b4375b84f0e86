"""Decides which optimizer calls, or which backward passes, are the steps of a training. Pure: no torch."""

from __future__ import annotations

import weakref
from typing import Any

_OTHERS = 20  # consecutive passes that end in another optimizer's step: GANs make up to ten
_UNSEEN = 16  # consecutive steps without a visible backward pass
_BY_HAND = 10  # passes: some scripts make a few before training, to summarise the model, say


class Steps:
    """Counts backward passes, and picks the optimizer whose calls are the training's steps.

    That is the first optimizer that steps. Another takes its place if it is gone or no longer steps.
    """

    def __init__(self) -> None:
        self.passes = 0
        self._leader: Any = lambda: None  # a weak reference to the optimizer whose steps count
        self._ended_at = -1  # number of passes at the last step
        self._others, self._other_at = 0, -1  # passes without the leader; the last of them
        self._unseen = 0
        self._has_optimizer = False

    def make_optimizer(self, init: Any, *args: Any, **kwargs: Any) -> None:
        """Calls an optimizer's `__init__`, and notes that the script has one."""
        self._has_optimizer = True
        init(*args, **kwargs)

    def passed(self) -> bool:
        """Notes the end of a backward pass; returns True if it is a step, because no optimizer exists."""
        self.passes += 1
        return not self._has_optimizer and self.passes >= _BY_HAND

    def stepped(self, optimizer: Any) -> bool:
        """Returns True if this call of an optimizer ends a step of the training.

        A second call after the same pass does not: several optimizers that step within a pass, one for each
        parameter, make one step. If passes are invisible (`torch.func`, a replayed CUDA graph), each call
        counts.
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
