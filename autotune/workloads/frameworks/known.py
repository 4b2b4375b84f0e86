"""Known frameworks, by their kind of workload."""

from collections.abc import Mapping

from autotune.core.settings import COMPILE, LEARNING_RATE, MICRO_BATCH, PRECISION, PREFETCH, WORKERS
from autotune.workloads.frameworks.framework import Framework
from autotune.workloads.frameworks.lightning import LIGHTNING
from autotune.workloads.frameworks.transformers import TRANSFORMERS

# Plain PyTorch: the loaders, optimizers and models of a script that takes no option for what is tuned.
TORCH = Framework(
    kind="torch",
    objects=("loader", "optimizer", "model"),
    roles={
        MICRO_BATCH: ("loader.batch_size",),
        WORKERS: ("loader.num_workers",),
        PREFETCH: ("loader.prefetch_factor",),
        LEARNING_RATE: ("optimizer.lr",),
        PRECISION: ("model.precision",),
        COMPILE: ("model.compile",),
        "channels_last": ("model.channels_last",),
        "weight_decay": ("optimizer.weight_decay",),
    },
    checkpoint=None,
    builds=False,
)

FRAMEWORKS: Mapping[str, Framework] = {one.kind: one for one in (LIGHTNING, TORCH, TRANSFORMERS)}
