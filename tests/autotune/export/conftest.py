"""A trial to export, with any settings."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from autotune.export.winner import Winner
from autotune.space.naming import Naming
from autotune.workloads.base import Workload

EVIDENCE = {"trial": "7 of session s", "measured": "2.00x", "hardware": "a GPU\nseed: 9"}
ROLES = {
    "micro_batch_size": "data.batch_size",
    "accumulation_steps": "accumulate",
    "learning_rate": "optim.lr",
    "precision": "amp",
}
WORDS = {"precision": {"fp32": "no", "bf16": "brain", "fp16": "half", "tf32": "tf32", "fp8": "fp8"}}
SETTINGS = {
    "data": {"batch_size": 32, "num_workers": 4},
    "accumulate": 2,
    "optim": {"lr": 2e-4, "betas": [0.9, 0.95], "weight_decay": 0.1},
    "amp": "brain",
    "max_grad_norm": 1.0,
    "gradient_checkpointing": True,
    "compile": False,
    "seed": 3,
}


@pytest.fixture
def winner() -> Callable[..., Winner]:
    """Returns a winner with the settings above, updated with others; None removes one."""

    def make(
        roles: Mapping[str, str] = ROLES,
        searched: tuple[str, ...] = ("data.batch_size", "amp", "optim.lr"),
        workload: Workload | None = None,
        gpus: int = 0,
        **other: Any,
    ) -> Winner:
        settings = {name: value for name, value in {**SETTINGS, **other}.items() if value is not None}
        known = workload or Workload("json:loads")
        return Winner(settings, Naming(roles, WORDS), frozenset(searched), EVIDENCE, known, gpus)

    return make
