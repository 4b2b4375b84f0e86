"""FLOPs and trained parameters of a training in this process, from a hook on the optimizer's first steps."""

import math
import sys
import time
import weakref
from collections import deque
from collections.abc import Mapping
from typing import Any

from autotune.core.record_names import FLOPS
from autotune.inside.site.autotune_figures import trained_parameters
from autotune.inside.site.autotune_flops import Flops

PARAMETERS = "trained_parameters"  # key in the first record after the optimizer is known
_OTHERS = 20  # consecutive steps of other optimizers after which the first one is given up
_MOST_STEPS = 100_000  # kept between two records
_clock_s = time.monotonic  # bound here, because a workload may patch time.monotonic


class StepFlops:
    """Counts the FLOPs of steps, which end when the first optimizer seen after the first record steps."""

    def __init__(self) -> None:
        self._flops = Flops()
        # The end of each step since the last record, and its FLOPs by number format.
        self._steps: deque[tuple[float, Mapping[str, int]]] = deque(maxlen=_MOST_STEPS)
        self._has_begun = self._is_attached = False
        self._optimizer: Any = None  # a weak reference
        self._parameters = 0  # trained by the optimizer; 0 once reported
        self._others = 0

    def attach(self) -> None:
        """Registers the hook as soon as torch is loaded."""
        optimizers = sys.modules.get("torch.optim.optimizer")
        if not self._is_attached and optimizers is not None:
            optimizers.register_optimizer_step_post_hook(self._end_step)
            self._is_attached = True

    def _end_step(self, optimizer: Any, *_: Any) -> None:
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
            self._flops.leave()  # counting costs time, and would never end

    def take(self, until_s: float = math.inf) -> Mapping[str, Any]:
        """Returns the FLOPs of the steps up to `until_s`, and, only once, the number of trained parameters.

        Steps that were not counted are assumed to take the same FLOPs as the counted one.
        """
        self._has_begun, count, step_flops = True, 0, dict[str, int]()
        while self._steps and self._steps[0][0] <= until_s:
            count, step_flops = count + 1, dict(self._steps.popleft()[1]) or step_flops
        figures = {FLOPS: {kind: count * flops for kind, flops in step_flops.items()}} if step_flops else {}
        trained, self._parameters = self._parameters, 0
        return {**figures, PARAMETERS: trained} if trained else figures
