"""Plain PyTorch: tunes the loaders, optimizers and models of a script that has no options for them."""

from autotune.core.settings import COMPILE, LEARNING_RATE, MICRO_BATCH, PRECISION, PREFETCH, WORKERS
from autotune.workloads.frameworks.framework import Framework

TORCH = Framework(
    kind="torch",
    objects=("loader", "optimizer", "model"),
    roles={
        MICRO_BATCH: "loader.batch_size",
        WORKERS: "loader.num_workers",
        PREFETCH: "loader.prefetch_factor",
        LEARNING_RATE: "optimizer.lr",
        PRECISION: "model.precision",
        COMPILE: "model.compile",
        "channels_last": "model.channels_last",
        "weight_decay": "optimizer.weight_decay",
    },
    checkpoint=None,
    builds=False,
)
