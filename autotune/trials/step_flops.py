"""What a step of a training in this process computes: counted in its first steps, by torch's own hook."""

import sys
import weakref
from collections.abc import Mapping
from typing import Any

from autotune.inside.site.autotune_flops import Flops

FLOPS = "step_flops"  # of a record: the operations of its step, by the kind of its numbers


class StepFlops:
    """Counts from the end of the first step on; the first optimizer that steps says when one has ended."""

    def __init__(self) -> None:
        self._flops, self._found = Flops(), dict[str, int]()
        self._optimizer: Any = None  # a reference to it
        self._hook: Any = None

    def attach(self) -> None:
        """Begins to listen, as soon as torch is there."""
        optimizers = sys.modules.get("torch.optim.optimizer")
        if self._hook is None and optimizers is not None:
            self._hook = optimizers.register_optimizer_step_post_hook(self._stepped)

    def _stepped(self, optimizer: Any, *_: Any) -> None:
        if self._optimizer is None:
            self._optimizer = weakref.ref(optimizer)
        if self._optimizer() is optimizer:
            self._found = self._flops.stepped()
        if self._flops.is_done:
            self._hook.remove()

    def taken(self) -> Mapping[str, Any]:
        """What was counted of the step that a record is of, to be put into it."""
        found, self._found = self._found, {}
        return {FLOPS: found} if found else {}
