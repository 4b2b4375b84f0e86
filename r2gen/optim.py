"""R2Gen's optimizer and learning-rate schedule."""

import warnings
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import StepLR

from r2gen.config import Config
from r2gen.model import R2Gen


def optimizer(model: R2Gen, config: Config) -> torch.optim.Adam:
    """Adam over two groups: the visual extractor at its share of the learning rate, and everything else.

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


def scheduler(optimizer: torch.optim.Optimizer, config: Config) -> StepLR:
    """Multiplies both learning rates by `lr_gamma` every `lr_step_epochs` epochs."""
    return StepLR(optimizer, config.lr_step_epochs, config.lr_gamma)


def end_epoch(schedule: StepLR) -> None:
    """The learning rates of the next epoch, also where every step of this one was left out.

    PyTorch then warns of a call in the wrong order.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Detected call of `lr_scheduler.step")
        schedule.step()


def clip(parameters: Iterable[nn.Parameter], value: float) -> Tensor:
    """Clips every gradient element to [-value, value], and returns the norm that they had together before."""
    trained = [p for p in parameters if p.grad is not None]
    norm = nn.utils.get_total_norm([p.grad for p in trained if p.grad is not None])
    nn.utils.clip_grad_value_(trained, value)
    return norm
