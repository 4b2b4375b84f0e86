"""What a step of a training in this process computes and trains: seen in its first steps, by torch's hook."""

import math
import sys
import time
import weakref
from collections import deque
from collections.abc import Mapping
from typing import Any

from autotune.inside.site.autotune_figures import trained_parameters
from autotune.inside.site.autotune_flops import Flops
from autotune.storage.records import FLOPS

PARAMETERS = "trained_parameters"  # of the first record after the optimizer is known: how many it trains
_OTHERS = 20  # steps of other optimizers in a row, after which the first one is not waited for
_MOST_STEPS = 100_000  # between two records
_clock_s = time.monotonic  # kept here: a workload that replaces the module's clock replaces its own alone


class StepFlops:
    """Counts from the first record on; the first optimizer that steps then says when a step has ended."""

    def __init__(self) -> None:
        self._flops = Flops()
        # When each step since the last record has ended, and what was counted of it.
        self._steps: deque[tuple[float, Mapping[str, int]]] = deque(maxlen=_MOST_STEPS)
        self._has_begun = self._is_attached = False
        self._optimizer: Any = None  # a reference to it
        self._parameters = 0  # that it trains, until that is reported
        self._others = 0

    def attach(self) -> None:
        """Begins to listen, as soon as torch is there."""
        optimizers = sys.modules.get("torch.optim.optimizer")
        if not self._is_attached and optimizers is not None:
            optimizers.register_optimizer_step_post_hook(self._stepped)
            self._is_attached = True

    def _stepped(self, optimizer: Any, *_: Any) -> None:
        if not self._has_begun or (self._flops.is_done and not self._steps):
            return
        if self._optimizer is None:
            self._optimizer = weakref.ref(optimizer)
            self._parameters = trained_parameters(optimizer)
        if self._optimizer() is optimizer:
            self._others = 0
            self._steps.append((_clock_s(), self._flops.stepped()))
            return
        self._others += 1
        if self._optimizer() is None or self._others >= _OTHERS:
            self._flops.leave()  # or else all that comes would be counted, which takes time

    def taken(self, until_s: float = math.inf) -> Mapping[str, Any]:
        """What the steps up to `until_s` have computed, and once what they train, for their record.

        Those that were not counted have computed as much as the one that was.
        """
        self._has_begun, count, found = True, 0, dict[str, int]()
        while self._steps and self._steps[0][0] <= until_s:
            count, found = count + 1, dict(self._steps.popleft()[1]) or found
        computed = {FLOPS: {kind: count * flops for kind, flops in found.items()}} if found else {}
        trained, self._parameters = self._parameters, 0
        return {**computed, PARAMETERS: trained} if trained else computed
