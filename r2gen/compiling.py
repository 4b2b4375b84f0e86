"""torch.compile of a training step, and the batches that are computed without it."""

from collections.abc import Callable

import torch
from torch import Tensor

from r2gen import precision
from r2gen.config import Config
from r2gen.model import R2Gen
from r2gen.packing import Packing

CUDA_GRAPHS = {"reduce-overhead", "max-autotune"}  # modes that capture CUDA graphs
_WITHOUT_GRAPHS = {"reduce-overhead": "default", "max-autotune": "max-autotune-no-cudagraphs"}


def captures_graphs(config: Config) -> bool:
    """Returns True if steps are captured as CUDA graphs, whose batches must all have one shape.

    A CUDA graph writes its gradients to the same memory on every replay, so the second micro-batch of a step
    would overwrite the gradients of the first. With accumulation, all modes therefore run without graphs.
    """
    return config.compile in CUDA_GRAPHS and config.accumulation_steps == 1


def compiled(model: R2Gen, config: Config) -> Callable[[Tensor, Tensor, Packing], Tensor]:
    """Compiles `model` once as configured, for any report length and a fixed image size.

    Batches for which compilation would take longer than it saves run eagerly: a single study, which PyTorch
    would specialise on, and on a GPU every incomplete batch, because convolutions are laid out best for
    images whose shape is known.

    Without graphs, the compiled program leaves out the memory's loop over the words. On a GPU, one step of
    that loop is a program of its own.
    """
    if config.compile == "off":
        return model
    has_graphs, is_on_gpu = captures_graphs(config), precision.device().type == "cuda"
    if not has_graphs and is_on_gpu:
        model.encoder_decoder.model.rm.compile_step()
    is_static = has_graphs or is_on_gpu
    fewest = config.micro_batch_size if is_static else min(2, config.micro_batch_size)
    mode = config.compile if has_graphs else _WITHOUT_GRAPHS.get(config.compile, config.compile)
    program = torch.compile(model, mode=mode, dynamic=None if has_graphs else True)

    def forward(images: Tensor, targets: Tensor, packing: Packing) -> Tensor:
        if len(images) < fewest:
            return model(images, targets, packing)  # type: ignore[no-any-return]
        torch._dynamo.mark_static(images, list(range(0 if is_static else 1, images.dim())))
        return program(images, targets, packing)  # type: ignore[no-any-return]

    return forward
