"""ds_config.json (deepspeed.ai/docs/config-json), whose reader ignores the field with the evidence."""

from typing import Any

from autotune.core.common_names import (
    CLIP_NORM,
    CLIP_VALUE,
    OFFLOAD_OPTIMIZER,
    OFFLOAD_PARAM,
    WEIGHT_DECAY,
    ZERO_STAGE,
)
from autotune.core.settings import (
    ACCUMULATION,
    CHECKPOINTING,
    COMPILE,
    LEARNING_RATE,
    MICRO_BATCH,
    PRECISION,
    PROCESSES,
)
from autotune.export import names, plain
from autotune.export.said import Words, at, said
from autotune.export.winner import Exported, Winner

NAME = "deepspeed"
_PRECISIONS = ("fp32", "torch-default", "tf32", "bf16", "fp16")
_ZERO = "zero_optimization"
_OWN = (f"{_ZERO}.", "optimizer.params.", "optimizer.type", "scheduler.params.", "scheduler.type")


def _precision(value: Any) -> dict[str, Any] | None:
    """One place for precision: of both switches at most one is on."""
    if value not in _PRECISIONS:
        return None
    return {"bf16.enabled": value == "bf16", "fp16.enabled": value == "fp16"}


def _offload(what: str) -> Any:
    return lambda value: {f"{_ZERO}.{what}.device": "none" if value in names.OFF else value}


WORDS = Words(
    {
        MICRO_BATCH: at("train_micro_batch_size_per_gpu"),
        ACCUMULATION: at("gradient_accumulation_steps"),
        PRECISION: _precision,
        CLIP_NORM: at("gradient_clipping"),
        ZERO_STAGE: at(f"{_ZERO}.stage"),
        OFFLOAD_OPTIMIZER: _offload("offload_optimizer"),
        OFFLOAD_PARAM: _offload("offload_param"),
    },
    {name: name for name in _OWN},
    {
        PROCESSES: "deepspeed --num_gpus",
        LEARNING_RATE: "of your optimizer",
        WEIGHT_DECAY: "of your optimizer",
        CHECKPOINTING: "of your model",
        COMPILE: "engine.compile() in the script",
        CLIP_VALUE: "DeepSpeed clips by the norm",
        f"{PRECISION}=tf32": "torch.backends.cuda.matmul.allow_tf32 in the script",
        f"{PRECISION}=fp8": "Transformer Engine's layers in the script",
    },
)


def render(winner: Winner) -> Exported:
    values, unsaid = said(winner, WORDS, NAME)
    return Exported(plain.json_of(winner, values, unsaid), unsaid)
