"""Transformers' trainer, those that are made of it, and scripts that use Accelerate."""

from autotune.workloads.frameworks.framework import Framework

TRANSFORMERS = Framework(
    kind="transformers",
    objects=("trainer", "model", "accelerator", "loader", "optimizer"),
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
    },
    checkpoint="checkpoint-*",
)
