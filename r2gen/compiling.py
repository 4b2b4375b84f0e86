"""torch.compile of a training step, and the batches that are computed without it."""

from collections.abc import Callable

import torch
from torch import Tensor

from r2gen import precision
from r2gen.config import Config
from r2gen.model import R2Gen
from r2gen.packing import Packing

CUDA_GRAPHS = {"reduce-overhead", "max-autotune"}  # modes that capture CUDA graphs


def compiled(model: R2Gen, config: Config) -> Callable[[Tensor, Tensor, Packing], Tensor]:
    """Compiles `model` once as configured, for any batch size and report length and a fixed image size.

    Batches for which compilation would take longer than it saves run eagerly: a single study, which PyTorch
    would specialise on, and, with CUDA graphs, every incomplete batch.

    A CUDA graph writes its gradients to the same memory on every replay, so the second micro-batch of a step
    would overwrite the gradients of the first. With accumulation, modes therefore run without graphs.

    Without graphs, the compiled program leaves out the memory's loop over the words. On a GPU, one step of
    that loop is a program of its own.
    """
    if config.compile == "off":
        return model
    has_graphs = config.compile in CUDA_GRAPHS
    if not has_graphs and precision.device().type == "cuda":
        model.encoder_decoder.model.rm.compile_step()
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
