"""Steps whose loss is not finite: undoing them, and giving up after too many in a row."""

import torch
from torch import nn

from r2gen.errors import DivergedError


class BadSteps:
    """Counts bad steps in a row. A good step resets the count."""

    def __init__(self, allowed: int) -> None:
        self._allowed = allowed
        self._first = ""
        self.in_a_row = 0

    def end_row(self) -> None:
        self.in_a_row = 0

    def add(self, step: int, epoch: int, loss: float, norm: float) -> None:
        """Counts a bad step; raises DivergedError, naming the first of the row, if there are too many."""
        if not self.in_a_row:
            self._first = f"the loss is {loss}, its gradient's norm {norm} at step {step}, epoch {epoch}"
        self.in_a_row += 1
        if self.in_a_row > self._allowed:
            self.give_up()

    def give_up(self) -> None:
        """Raises DivergedError if the last step was bad."""
        if self.in_a_row:
            after = self.in_a_row - 1
            more = f", and no better in the {after} steps after it" if after else ""
            raise DivergedError(
                f"{self._first}{more}: lower the learning rate, or use a wider precision, in a new directory"
            )


class RunningStatistics:
    """Batch norm's running means, variances and batch counts, kept to undo a forward pass.

    A forward pass changes them, and a NaN in them would never go away.
    """

    def __init__(self, model: nn.Module) -> None:
        counts = [value for name, value in model.named_buffers() if name.endswith("num_batches_tracked")]
        values = [
            value for name, value in model.named_buffers() if name.endswith(("running_mean", "running_var"))
        ]
        self._live = [
            group for group in (values, counts) if group
        ]  # one dtype per group, copied in few kernels
        self._kept = [[value.clone() for value in group] for group in self._live]

    def keep(self) -> None:
        for kept, live in zip(self._kept, self._live, strict=True):
            torch._foreach_copy_(kept, live)

    def put_back(self) -> None:
        for kept, live in zip(self._kept, self._live, strict=True):
            torch._foreach_copy_(live, kept)


def is_finite(model: nn.Module) -> bool:
    """Returns True if all weights and statistics are finite: an update can overflow before a loss does."""
    sound = [value.isfinite().all() for value in model.state_dict().values()]
    return bool(torch.stack(sound).all())  # one synchronisation with the device
