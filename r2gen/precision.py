"""The numeric precision of a training, and the machine's support for it."""

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.util import find_spec

import torch
from torch import Tensor, nn

from r2gen.config import Config
from r2gen.errors import InputError

_NEEDS = {"tf32": (8, 0), "bf16": (8, 0), "fp16": (5, 3), "fp8": (8, 9)}


def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def capability() -> tuple[int, int] | None:
    """Returns the compute capability of the GPU; None without one."""
    return torch.cuda.get_device_capability() if device().type == "cuda" else None


def check(config: Config, capability: tuple[int, int] | None) -> None:
    """Raises InputError if a GPU of this capability, or the CPU, cannot train as configured."""
    name = config.precision
    if config.compile == "cuda-graphs" and capability is None:
        raise InputError("compile cuda-graphs: needs a CUDA device; off runs here")
    if name in {"fp32", "torch-default"} or (name == "bf16" and capability is None):
        return
    if capability is None:
        raise InputError(f"precision {name}: needs a CUDA device; fp32, torch-default and bf16 run here")
    if capability < _NEEDS[name]:
        needed, available = (".".join(map(str, c)) for c in (_NEEDS[name], capability))
        raise InputError(f"precision {name}: needs compute capability {needed}, this device has {available}")
    if name == "fp8" and find_spec("torchao") is None:
        raise InputError("precision fp8: needs torchao: pip install torchao")


@contextmanager
def backends(config: Config) -> Iterator[None]:
    """Sets PyTorch's global backend settings for this run, and restores them at the end.

    TF32 is on if configured and off otherwise, except that `torch-default` keeps PyTorch's setting: by
    default on for convolutions and off for matrix products. cuDNN attention is off: it builds a plan for
    every new shape, which takes tenths of a second, and decoding has a new shape at every word. PyTorch
    prefers it on GPUs of compute capability 9.0 and 10.0.
    """
    cuda, cudnn = torch.backends.cuda, torch.backends.cudnn
    attends = cuda.cudnn_sdp_enabled()  # type: ignore[no-untyped-call]
    before = cuda.matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark
    cudnn.benchmark = config.cudnn_benchmark
    cuda.enable_cudnn_sdp(False)
    if config.precision != "torch-default":
        cuda.matmul.allow_tf32 = cudnn.allow_tf32 = config.precision == "tf32"
    try:
        yield
    finally:
        cuda.matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark = before
        cuda.enable_cudnn_sdp(attends)


def autocast(config: Config, *, cache: bool = True) -> AbstractContextManager[object]:
    """Returns the autocast context of forward passes. fp8 runs everything but its linear layers in bf16.

    `cache` keeps converted weights until the outermost context ends.
    """
    formats = {"bf16": torch.bfloat16, "fp8": torch.bfloat16, "fp16": torch.float16}
    dtype = formats.get(config.precision)
    return nullcontext() if dtype is None else torch.autocast(device().type, dtype, cache_enabled=cache)


def inference(config: Config) -> AbstractContextManager[None]:
    """Returns the context without gradients: no_grad for fp8, as torchao does not support inference_mode."""
    return torch.no_grad() if config.precision == "fp8" else torch.inference_mode()


def convert(model: nn.Module, config: Config) -> None:
    """Converts the linear layers of `model` to fp8 computation, if configured; weights stay fp32.

    fp8 matrix products need sizes that are multiples of 16: layers of other sizes are not converted, and the
    number of rows, over which the weight gradient sums, is padded.
    """
    if config.precision != "fp8":
        return
    from torchao.float8 import (  # noqa: PLC0415 - an optional dependency
        Float8LinearConfig,
        convert_to_float8_training,
    )

    settings = Float8LinearConfig(pad_inner_dim=True)
    convert_to_float8_training(model, config=settings, module_filter_fn=_fits_fp8)


def _fits_fp8(module: nn.Module, name: str) -> bool:
    """Returns True for a linear layer of suitable size outside the recurrent memory, which stays in fp32."""
    if not isinstance(module, nn.Linear) or ".rm." in f".{name}.":
        return False
    return module.in_features % 16 == 0 and module.out_features % 16 == 0


class Scaler:
    """fp16 loss scaling, a no-op in other precisions. Unscale once, after accumulation."""

    def __init__(self, config: Config) -> None:
        enabled = config.precision == "fp16"
        self._scaler = torch.amp.GradScaler(device().type, enabled=enabled)

    def scale(self, loss: Tensor) -> Tensor:
        return self._scaler.scale(loss)

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        self._scaler.unscale_(optimizer)

    def is_bad(self, norm: float) -> bool:
        """Returns True if unscaled gradients of this norm show that the step went wrong.

        An infinite gradient is clipped like any large one, but NaN would end up in the weights. In fp16,
        gradients overflow while the scale is searched, but no longer once it is below 1.
        """
        if not self._scaler.is_enabled():
            return math.isnan(norm)
        return not math.isfinite(norm) and self._scaler.get_scale() < 1

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Takes the step or, if a gradient overflowed, lowers the scale."""
        self._scaler.step(optimizer)
        self._scaler.update()

    def skip(self) -> None:
        """Skips a step whose gradients were already unscaled."""
        self._scaler.update()

    def state_dict(self) -> dict[str, object]:
        return self._scaler.state_dict()

    def load_state_dict(self, state: dict[str, object]) -> None:
        if state:
            self._scaler.load_state_dict(state)
