"""R2Gen's optimizer and learning-rate schedule."""

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from r2gen.config import Config
from r2gen.model import R2Gen


def optimizer(model: R2Gen, config: Config) -> torch.optim.Adam:
    """Returns Adam with two groups: the visual extractor at its share of the learning rate, and the rest.

    Weight decay is L2 on every parameter, as in R2Gen. On CUDA the fused kernel computes the same update.
    """
    visual = list(model.visual_extractor.parameters())
    ours = {id(p) for p in visual}
    rest = [p for p in model.parameters() if id(p) not in ours]
    return torch.optim.Adam(
        [
            {"params": visual, "lr": config.learning_rate * config.visual_learning_rate_ratio},
            {"params": rest, "lr": config.learning_rate},
        ],
        weight_decay=config.weight_decay,
        amsgrad=config.amsgrad,
        fused=True,
    )


def coming_bytes(optimizer: torch.optim.Adam) -> int:
    """Returns the bytes of the state that the first step will create: two averages, three with AMSGrad."""
    if optimizer.state:
        return 0
    groups = [(2 + group["amsgrad"], group["params"]) for group in optimizer.param_groups]
    return sum(
        count * p.numel() * p.element_size() for count, params in groups for p in params if p.requires_grad
    )


class Position(NamedTuple):
    """The position of a step in its training."""

    epoch: int  # from 1
    samples: int  # before the step
    studies: int  # in the step
    total: int  # samples of the whole training


def set_rates(optimizer: torch.optim.Optimizer, config: Config, position: Position) -> float:
    """Sets both groups' learning rates for a step; returns the rate of the group without the extractor."""
    rest = config.learning_rate
    bases = (rest * config.visual_learning_rate_ratio, rest)
    for group, base in zip(optimizer.param_groups, bases, strict=True):
        group["lr"] = rate(base, config, position)
    return float(optimizer.param_groups[-1]["lr"])


def rate(base: float, config: Config, position: Position) -> float:
    """Returns the learning rate of a step, `base` being the configured one.

    A linear warm-up (Goyal et al., arXiv:1706.02677, section 2.2), counted in samples and so independent of
    the batch size. Then R2Gen's steps, a factor of `lr_gamma` every `lr_step_epochs` epochs, or half a cosine
    down to 0 at the end of the training (Loshchilov & Hutter, arXiv:1608.03983, equation 5, no restarts).
    """
    warmup = config.warmup_samples
    warm = min(1.0, (position.samples + position.studies) / warmup) if warmup else 1.0
    if config.schedule == "cosine":
        done = max(0, position.samples - warmup) / max(1, position.total - warmup)
        return base * warm * (1 + math.cos(math.pi * min(1.0, done))) / 2
    for _ in range((position.epoch - 1) // config.lr_step_epochs):
        base *= config.lr_gamma  # one by one, as PyTorch's StepLR: the same to the last bit
    return base * warm


def clip(parameters: Iterable[nn.Parameter], value: float) -> Tensor:
    """Clips every gradient element to [-value, value], and returns the total norm before clipping."""
    trained = [p for p in parameters if p.grad is not None]
    norm = nn.utils.get_total_norm([p.grad for p in trained if p.grad is not None])
    nn.utils.clip_grad_value_(trained, value)
    return norm
