"""Optimizer steps over a window of micro-batches: taken, skipped, or undone."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from r2gen import checkpoint, optim, precision
from r2gen.clock import Stopwatch
from r2gen.config import Config
from r2gen.data import Batch, normalise
from r2gen.divergence import BadSteps, RunningStatistics
from r2gen.graphs import Recorded
from r2gen.model import R2Gen, loss_sum
from r2gen.optim import Position
from r2gen.packing import Packing, lengths
from r2gen.shortage import HalvedBatch

_NOTE = ", with as many more of them in an optimizer step; batch normalisation sees fewer studies at once"


@dataclass(frozen=True)
class Gradients:
    """The figures of a window's clipped gradients."""

    loss: float  # mean over the window's tokens, in nats
    norm: float  # before clipping
    watch: Stopwatch


class Stepper:
    """Takes the optimizer steps of `model`: call `gradients`, then `update`, or `undo` in its place."""

    def __init__(self, model: R2Gen, config: Config) -> None:
        self._model, self._config = model, config
        self._optimizer = optim.optimizer(model, config)
        self._scaler = precision.Scaler(config)
        self._statistics = RunningStatistics(model)
        self._rng: Mapping[str, Any] | None = None  # at the beginning of the step; None between steps
        self._batch = HalvedBatch("micro_batch_size", config, _NOTE)
        self._recorded: Recorded | None = None
        self._is_plain = False  # while a step is repeated without graphs
        self.bad = BadSteps(config.max_bad_steps)

    def gradients(self, window: Sequence[Batch]) -> Gradients:
        """Computes the gradients of the mean loss over all tokens of `window`, and clips them.

        If a micro-batch does not fit into memory, the whole window is repeated in smaller ones.
        """
        self._statistics.keep()
        self._rng = checkpoint.rng_state()
        loss, watch = self._batch.run(partial(self._backward, window), self._undo_for_less)
        self._is_plain = False
        self._scaler.unscale(self._optimizer)
        norm = optim.clip(self._model.parameters(), self._config.grad_clip_value)
        # Read together, because every copy waits for the device; and before the step, which depends on them.
        numbers: list[float] = torch.stack((loss, norm)).tolist()
        return Gradients(numbers[0], numbers[1], watch)

    def _backward(self, window: Sequence[Batch], size: int) -> tuple[Tensor, Stopwatch]:
        forward = self._forward(size)
        device = precision.device()
        tokens = sum(sum(lengths(batch.targets)) for batch in window)
        loss = torch.zeros((), device=device)
        batches = list(_parts(window, size))
        if self._recorded:
            self._recorded.begin_step(len(batches))
        watch = Stopwatch(device)
        for batch in batches:
            images = normalise(batch.images.to(device, non_blocking=True))
            watch.mark("transfer_s")
            targets = batch.targets.to(device, non_blocking=True)
            packing = Packing.from_lengths(lengths(batch.targets), device)
            with precision.autocast(self._config):
                summed = loss_sum(forward(images, targets, packing), targets)
            watch.mark("forward_s")
            torch.autograd.backward(self._scaler.scale(summed / tokens))
            loss += summed.detach() / tokens
            watch.mark("backward_s")
        return loss, watch

    def _forward(self, size: int) -> Callable[[Tensor, Tensor, Packing], Tensor]:
        """Returns the forward pass of micro-batches of up to `size` studies."""
        if self._config.compile == "off" or self._is_plain:
            return self._model
        if self._recorded is None:
            room_bytes = optim.coming_bytes(self._optimizer)
            self._recorded = Recorded(self._model, self._config, size, room_bytes)
        return self._recorded

    def _undo_for_less(self) -> bool:
        """Reverts an attempt that ran out of memory; returns True if the same size may fit without graphs.

        So it may if a smaller micro-batch, such as an epoch's last, had no room beside the recording.
        """
        given_up, self._recorded = self._recorded, None
        self._is_plain = given_up is not None and given_up.is_beside
        self.undo()
        return self._is_plain

    def update(self, gradients: Gradients, position: Position, step: int) -> dict[str, Any]:
        """Takes the step and returns its part of the record; a bad step does not change the model.

        Raises DivergedError after too many bad steps in a row.
        """
        rate = optim.set_rates(self._optimizer, self._config, position)
        if math.isfinite(gradients.loss) and not self._scaler.is_bad(gradients.norm):
            self._scaler.step(self._optimizer)
            self.bad.end_row()
        else:
            self._scaler.skip()
            self._statistics.put_back()
            self.bad.add(step, position.epoch, gradients.loss, gradients.norm)
        self._optimizer.zero_grad(set_to_none=True)
        gradients.watch.mark("optimizer_s")
        self._rng = None
        return {
            "train_loss": gradients.loss,
            "learning_rate": rate,
            "grad_norm": gradients.norm,
            "bad_steps": self.bad.in_a_row,
            **self._fitting(),
            **gradients.watch.seconds(),
        }

    def _fitting(self) -> dict[str, int]:
        """Returns the `micro_batch_size` that fits, if it is smaller than configured."""
        return {"micro_batch_size": self._batch.size} if self._batch.is_halved else {}

    def undo(self) -> None:
        """Reverts everything since `gradients` was called; does nothing between steps."""
        if self._rng is None:
            return
        self._optimizer.zero_grad(set_to_none=True)
        self._statistics.put_back()
        checkpoint.set_rng_state(self._rng)

    def state_dict(self) -> dict[str, Any]:
        """Returns the state for a checkpoint; `micro_batch_size` only if the configured one did not fit."""
        return {
            "optimizer": self._optimizer.state_dict(),
            "scaler": self._scaler.state_dict(),
            **self._fitting(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the state that `state_dict` returned."""
        self._optimizer.load_state_dict(state["optimizer"])
        self._scaler.load_state_dict(state["scaler"])
        self._batch.restore(state.get("micro_batch_size", self._batch.size))


def _parts(window: Sequence[Batch], size: int) -> Iterator[Batch]:
    """Yields the batches of `window`, split to at most `size` studies and padded no more than necessary."""
    for batch in window:
        if len(batch.studies) <= size:
            yield batch
            continue
        tensors = (batch.images, batch.targets, batch.studies)
        for images, targets, studies in zip(*(torch.split(t, size) for t in tensors), strict=True):
            yield Batch(images, targets[:, : max(lengths(targets)) + 1], studies, ())
