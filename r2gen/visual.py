"""The ResNet that turns an image into patch features, under torchvision's parameter names."""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval
from torch.utils.checkpoint import checkpoint

from r2gen.errors import InputError

_EXPANSION = 4
_ARCHITECTURES = {"resnet101": ((3, 4, 23, 3), 64), "small": ((1, 1, 1, 1), 16)}  # blocks a stage, width
# R2Gen holds torchvision's children in a Sequential, so its names are their positions.
_POSITIONS = {"conv1": "0", "bn1": "1", "layer1": "4", "layer2": "5", "layer3": "6", "layer4": "7"}


def feature_count(name: str) -> int:
    """Returns the number of features per patch."""
    return _ARCHITECTURES[name][1] * 8 * _EXPANSION


class Bottleneck(nn.Module):
    """1x1, 3x3 (with the stride, as in torchvision) and 1x1 convolutions, plus the shortcut."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        out = width * _EXPANSION
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, out, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or channels != out:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out)
            )

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        out: Tensor = self.relu(self.bn3(self.conv3(x)) + shortcut)
        return out


class VisualExtractor(nn.Module):
    """Turns images [B, 3, S, S] into patch features [B, (S / 32)^2, features]."""

    def __init__(
        self, name: Literal["resnet101", "small"], *, activation_checkpointing: bool = False
    ) -> None:
        super().__init__()
        blocks, width = _ARCHITECTURES[name]
        self.features = feature_count(name)
        self.activation_checkpointing = activation_checkpointing
        stem = [nn.Conv2d(3, width, 7, 2, padding=3, bias=False), nn.BatchNorm2d(width)]
        self.model = nn.Sequential(
            *stem, nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, padding=1), *_stages(blocks, width)
        )
        self.apply(_initialise)

    def forward(self, images: Tensor) -> Tensor:
        x: Tensor = self.model[:4](images)
        for stage in list(self.model)[4:]:
            x = self._run(stage, x)
        return x.flatten(2).transpose(1, 2)

    def _run(self, stage: nn.Module, x: Tensor) -> Any:
        if not (self.activation_checkpointing and self.training and torch.is_grad_enabled()):
            return stage(x)
        contexts = partial(_checkpoint_contexts, stage)
        # Without random numbers to restore, it can be recorded in a CUDA graph.
        return checkpoint(stage, x, use_reentrant=False, preserve_rng_state=False, context_fn=contexts)


def _checkpoint_contexts(stage: nn.Module) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """Returns the contexts of `stage`'s first computation and of its recomputation."""
    return nullcontext(), _running_statistics_kept(stage)


@contextmanager
def _running_statistics_kept(stage: nn.Module) -> Iterator[None]:
    """Stops batch norm from counting a batch twice when checkpointing recomputes `stage`."""
    norms = [module for module in stage.modules() if isinstance(module, nn.BatchNorm2d)]
    settings = [(norm.momentum, norm.num_batches_tracked) for norm in norms]
    for norm in norms:
        norm.momentum, norm.num_batches_tracked = 0.0, None
    try:
        yield
    finally:
        for norm, (momentum, batches) in zip(norms, settings, strict=True):
            norm.momentum, norm.num_batches_tracked = momentum, batches


def folded(extractor: VisualExtractor) -> VisualExtractor:
    """Returns a copy for evaluation, with batch norms folded into the convolutions.

    Its features are equal up to rounding. It is in channels_last, in which convolutions are faster on every
    device.
    """
    copy = deepcopy(extractor).eval()
    for module in list(copy.modules()):
        if isinstance(module, Bottleneck):
            for number in (1, 2, 3):
                _fold(module, f"conv{number}", f"bn{number}")
            if module.downsample is not None:
                _fold(module.downsample, "0", "1")
    _fold(copy.model, "0", "1")
    out: VisualExtractor = copy.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return out


def _fold(parent: nn.Module, convolution: str, norm: str) -> None:
    before = cast("nn.Conv2d", parent.get_submodule(convolution))
    after = cast("nn.BatchNorm2d", parent.get_submodule(norm))
    parent.set_submodule(convolution, fuse_conv_bn_eval(before, after))
    parent.set_submodule(norm, nn.Identity())


def _stages(blocks: Iterable[int], width: int) -> list[nn.Sequential]:
    stages, channels = [], width
    for index, count in enumerate(blocks):
        planes = width * 2**index
        stage = []
        for block in range(count):
            stage.append(Bottleneck(channels, planes, stride=2 if index and not block else 1))
            channels = planes * _EXPANSION
        stages.append(nn.Sequential(*stage))
    return stages


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


def load_imagenet_weights(extractor: VisualExtractor, path: Path) -> None:
    """Loads `extractor` from the state dict in `path`, which has torchvision's names; `fc.*` is skipped.

    Raises InputError, with nothing loaded, if the file cannot be read or does not fit.
    """
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # noqa: BLE001 - torch.load raises any exception for invalid bytes
        # torch's own message for an unsafe file is not passed on: it explains how to execute the content.
        reason = getattr(error, "strerror", None) or "is none, or holds more than tensors"
        raise InputError(f"visual_weights {path}: cannot be read as a state dict: {reason}") from None
    if not isinstance(loaded, dict) or not all(isinstance(value, Tensor) for value in loaded.values()):
        raise InputError(f"visual_weights {path}: must be a state dict of tensors")
    weights = {_renamed(key): value for key, value in loaded.items() if not key.startswith("fc.")}
    _require_fit(weights, extractor.model.state_dict(), path)
    extractor.model.load_state_dict(weights, strict=False)


def _renamed(key: str) -> str:
    head, _, rest = key.partition(".")
    return f"{_POSITIONS.get(head, head)}.{rest}"


def _require_fit(weights: dict[str, Tensor], wanted: dict[str, Tensor], path: Path) -> None:
    # Files from before 2018 lack num_batches_tracked, which a fixed momentum does not need.
    missing = [key for key in wanted if key not in weights and not key.endswith("num_batches_tracked")]
    unknown = [key for key in weights if key not in wanted]
    shapes = [
        f"{_torchvision_name(key)} {list(value.shape)}, not {list(wanted[key].shape)}"
        for key, value in weights.items()
        if key in wanted and value.shape != wanted[key].shape
    ]
    faults = {"missing": missing, "unknown": unknown}
    wrong = [f"{what} {_few([_torchvision_name(k) for k in keys])}" for what, keys in faults.items() if keys]
    wrong += [f"shapes {_few(shapes)}"] if shapes else []
    if wrong:
        raise InputError(f"visual_weights {path}: must fit the visual extractor: {'; '.join(wrong)}")


def _torchvision_name(key: str) -> str:
    names = {position: name for name, position in _POSITIONS.items()}
    head, _, rest = key.partition(".")
    return f"{names.get(head, head)}.{rest}".removesuffix(".")


def _few(items: list[str]) -> str:
    return ", ".join(items[:3]) + (f" and {len(items) - 3} more" if len(items) > 3 else "")
