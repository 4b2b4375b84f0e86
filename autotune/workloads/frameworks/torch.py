"""Plain PyTorch: the loaders and optimizers that a script makes, for one that takes no option for them."""

from autotune.core.settings import LEARNING_RATE, MICRO_BATCH, PREFETCH, WORKERS
from autotune.workloads.frameworks.framework import Framework

TORCH = Framework(
    kind="torch",
    objects=("loader", "optimizer"),
    roles={
        MICRO_BATCH: "loader.batch_size",
        WORKERS: "loader.num_workers",
        PREFETCH: "loader.prefetch_factor",
        LEARNING_RATE: "optimizer.lr",
        "weight_decay": "optimizer.weight_decay",
    },
    checkpoint=None,
)
