"""CUDA graphs: a training's passes, recorded once and replayed."""

from collections.abc import Callable
from typing import Any, cast

import torch
import torch.nn.functional as F  # noqa: N812 - the usual alias
from torch import Tensor, nn

from r2gen import precision
from r2gen.config import Config
from r2gen.divergence import RunningStatistics
from r2gen.model import R2Gen
from r2gen.packing import Packing


class Recorded:
    """The forward pass of `model`, recorded with its backward pass at the first batch of `size` studies.

    A step starts thousands of small kernels, which takes longer than computing them; a replay starts them all
    at once. It needs one shape, so reports are padded to the longest possible one. Smaller micro-batches
    run as without graphs. Every replay writes the gradients to the same memory.
    """

    def __init__(self, model: R2Gen, config: Config, size: int, room_bytes: int) -> None:
        """`room_bytes` of memory stay free: a recording never gives back its own."""
        self._model, self._size, self._length = model, size, config.max_seq_length
        self._whole, self._room_bytes = _Whole(model, config, size), room_bytes
        self._replay: Callable[[Tensor, Tensor], Tensor] | None = None
        self.is_beside = False  # a smaller micro-batch runs while the recording keeps its memory

    def begin_step(self, passes: int) -> None:
        """Lets the gradients of several passes add up outside of the recording's memory."""
        if passes > 1:
            for parameter in self._model.parameters():
                parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None

    def __call__(self, images: Tensor, targets: Tensor, packing: Packing) -> Tensor:
        self.is_beside = self._replay is not None and len(images) < self._size
        if len(images) < self._size:
            out: Tensor = self._model(images, targets, packing)
            return out
        padded = F.pad(targets, (0, self._length - targets.size(1)))
        self._replay = self._replay or _record(self._whole, (images, padded), self._room_bytes)
        return self._replay(images, padded)[:, : targets.size(1) - 1]


class _Whole(nn.Module):
    """The forward pass over every position of padded reports."""

    def __init__(self, model: R2Gen, config: Config, batch: int) -> None:
        super().__init__()
        self.model, self._config = model, config
        self._packing = Packing.from_lengths([config.max_seq_length - 1] * batch, precision.device())

    def forward(self, images: Tensor, targets: Tensor) -> Tensor:
        with precision.autocast(self._config, cache=False):
            out: Tensor = self.model(images, targets, self._packing)
        return out


def _record(
    whole: _Whole, batch: tuple[Tensor, Tensor], room_bytes: int
) -> Callable[[Tensor, Tensor], Tensor]:
    """Records the passes over `batch`; warming up changes neither running statistics nor random numbers."""
    statistics = RunningStatistics(whole)
    statistics.keep()
    room = torch.empty(room_bytes, dtype=torch.uint8, device=batch[0].device)
    # torch refuses to record within a caching autocast; `whole` has one of its own.
    with torch.random.fork_rng([torch.cuda.current_device()]), torch.autocast("cuda", enabled=False):
        # The recording reads its inputs from these tensors' memory.
        replay: Any = torch.cuda.make_graphed_callables(whole, tuple(one.clone() for one in batch))
    del room
    statistics.put_back()
    # torch warns if other passes share autograd nodes of the recording, but synchronises the streams itself.
    torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)
    return cast("Callable[[Tensor, Tensor], Tensor]", replay)
