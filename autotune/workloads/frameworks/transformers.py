"""Transformers' trainer, those that are made of it, and scripts that use Accelerate."""

import math
from collections.abc import Mapping

from autotune.core.settings import Setting
from autotune.inside.site.autotune_wire import IN_TRIAL
from autotune.workloads.frameworks.framework import Framework


def _for_trial(
    settings: Mapping[str, Setting], samples: int, evaluations: int, quality: str
) -> dict[str, Setting]:
    """Its evaluations come when the samples, or tokens, are seen: the hook counts them."""
    del settings, quality
    return {f"{IN_TRIAL}.evaluate_every": math.ceil(samples / evaluations)}


TRANSFORMERS = Framework(
    kind="transformers",
    objects=("trainer", "model", "accelerator", "loader", "optimizer", IN_TRIAL),
    roles={
        "micro_batch_size": "trainer.per_device_train_batch_size",
        "accumulation_steps": "trainer.gradient_accumulation_steps",
        "precision": "trainer.precision",
        "num_workers": "trainer.dataloader_num_workers",
        "prefetch_factor": "trainer.dataloader_prefetch_factor",
        "learning_rate": "trainer.learning_rate",
        "weight_decay": "trainer.weight_decay",
        "activation_checkpointing": "trainer.gradient_checkpointing",
        "compile": "trainer.torch_compile",
        "seed": "trainer.seed",
    },
    other_roles={
        "micro_batch_size": ("loader.batch_size",),
        "accumulation_steps": ("accelerator.gradient_accumulation_steps",),
        "precision": ("accelerator.mixed_precision",),
        "num_workers": ("loader.num_workers",),
        "prefetch_factor": ("loader.prefetch_factor",),
        "learning_rate": ("optimizer.lr",),
        "weight_decay": ("optimizer.weight_decay",),
        "activation_checkpointing": ("trainer.activation_checkpointing",),
    },
    checkpoint="checkpoint-*/trainer_state.json",  # the last file of it that is written
    for_trial=_for_trial,
)
