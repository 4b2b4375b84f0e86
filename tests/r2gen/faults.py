"""Faults that several tests inject."""

import math
import resource
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from r2gen import train
from r2gen.model import R2Gen


def cut_short(image: Path) -> None:
    """Truncates `image`, which is then recognised as one but cannot be decoded."""
    image.write_bytes(image.read_bytes()[:-300])


def pretend_size(image: Path, side: int) -> None:
    """Makes a PNG claim to be `side` pixels wide and high."""
    changed = bytearray(image.read_bytes())
    changed[16:24] = struct.pack(">II", side, side)
    changed[29:33] = struct.pack(">I", zlib.crc32(changed[12:29]))
    image.write_bytes(changed)


@contextmanager
def before_passes(kind: type[nn.Module], act: Callable[[nn.Module, Tensor], object]) -> Iterator[None]:
    """Calls `act` with the module and its first input before every pass through a module of `kind`."""

    def call(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if isinstance(module, kind):
            act(module, inputs[0])

    handle = register_module_forward_pre_hook(call)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def no_file_beyond(limit: int) -> Iterator[None]:
    """Limits files of this process to `limit` bytes, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def change_models(monkeypatch: pytest.MonkeyPatch, change: Callable[[R2Gen], object]) -> None:
    """Calls `change` with every model that is trained from now on."""
    build = train.build

    def built(*given: Any) -> tuple[R2Gen, Any]:
        model, tokenizer = build(*given)
        change(model)
        return model, tokenizer

    monkeypatch.setattr(train, "build", built)


def spoil(model: nn.Module, passes: set[int]) -> None:
    """Makes the input of `model` NaN in these training passes, counted from 1."""
    seen = 0

    def change(module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        nonlocal seen
        seen += module.training
        return (inputs[0] * math.nan, *inputs[1:]) if module.training and seen in passes else None

    model.register_forward_pre_hook(change)
