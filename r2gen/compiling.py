"""torch.compile of a training step: for which batches there is a program, and which are computed without."""

from collections.abc import Callable

import torch
from torch import Tensor

from r2gen.config import Config
from r2gen.model import R2Gen
from r2gen.packing import Packing

CUDA_GRAPHS = {"reduce-overhead", "max-autotune"}  # modes that make some


def compiled(model: R2Gen, config: Config) -> Callable[[Tensor, Tensor, Packing], Tensor]:
    """`model`, compiled as configured, once: for batches and reports of any size, and images of this one.

    Some batches are computed as if nothing were compiled, because to compile for them would take longer than
    they do: a single study, which PyTorch makes a program of its own for, and with CUDA graphs every batch
    that is not whole.

    A CUDA graph writes its gradients into the same memory every time it runs, so that the second micro-batch
    of a step would overwrite what the first one left there: with accumulation, modes go without graphs.
    """
    if config.compile == "off":
        return model
    has_graphs = config.compile in CUDA_GRAPHS
    fewest = config.micro_batch_size if has_graphs else min(2, config.micro_batch_size)
    without_graphs = {"reduce-overhead": "default", "max-autotune": "max-autotune-no-cudagraphs"}
    accumulates = config.accumulation_steps > 1
    mode = without_graphs.get(config.compile, config.compile) if accumulates else config.compile
    program = torch.compile(model, mode=mode, dynamic=None if has_graphs else True)

    def forward(images: Tensor, targets: Tensor, packing: Packing) -> Tensor:
        if len(images) < fewest:
            return model(images, targets, packing)  # type: ignore[no-any-return]
        torch._dynamo.mark_static(images, list(range(1, images.dim())))
        return program(images, targets, packing)  # type: ignore[no-any-return]

    return forward
