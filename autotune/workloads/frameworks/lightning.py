"""PyTorch Lightning, by either of its names."""

from autotune.workloads.frameworks.framework import Framework

LIGHTNING = Framework(
    kind="lightning",
    objects=("trainer", "loader", "optimizer"),
    roles={
        "micro_batch_size": "loader.batch_size",
        "accumulation_steps": "trainer.accumulate_grad_batches",
        "precision": "trainer.precision",
        "num_workers": "loader.num_workers",
        "prefetch_factor": "loader.prefetch_factor",
        "learning_rate": "optimizer.lr",
        "weight_decay": "optimizer.weight_decay",
    },
    words={"precision": {"fp32": "32-true", "bf16": "bf16-mixed", "fp16": "16-mixed"}},
    checkpoint="autotune.ckpt",
)
