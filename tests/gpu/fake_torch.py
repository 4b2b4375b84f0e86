"""Torch's answers about the GPUs of `fake_gpus`, at once: to import torch and ask it takes seconds."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from autotune.sessions import gpus
from autotune.sessions.gpus import Torch
from tests.gpu.torch_on_fakes import sitecustomize

_KERNELS = ("sm_75", "sm_80", "sm_86", "sm_90", "compute_120")


@dataclass
class FakeTorch:
    """Answers in place of torch, and keeps the environments that it was asked in."""

    changes: Mapping[str, Any] = field(default_factory=dict)  # to its answers, as for `torch_of`
    asked: list[Mapping[str, str]] = field(default_factory=list)

    def __call__(self, environment: Mapping[str, str], python: str = sys.executable) -> Torch:
        self.asked.append(environment)
        return torch_of({**os.environ, **environment, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, **self.changes)


def torch_of(environment: Mapping[str, str], fails: Mapping[str, str] | None = None, **changed: Any) -> Torch:
    """Returns what `torch_check` would print in this environment; without `fake_gpus` there are no GPUs."""
    seen = [
        {**gpu, "fails": fails or _failed(gpu)}
        for gpu in (sitecustomize.shown(environment) if "FAKE_TORCH" in environment else ())
    ]
    return Torch(**{"version": "2.13.0", "cuda": "13.0", "kernels": _KERNELS, "devices": seen} | changed)


def _failed(gpu: Mapping[str, Any]) -> dict[str, str]:
    return {"fp32": gpu["raises"].splitlines()[0]} if gpu["raises"] else {}


@pytest.fixture
def fake_torch(monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    """Answers in place of torch for this process; a test may set its `changes`."""
    fake = FakeTorch()
    monkeypatch.setattr(gpus, "ask", fake)
    return fake
