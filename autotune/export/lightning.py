"""The config of a LightningCLI (lightning.ai/docs/pytorch/stable/cli).

That is its trainer, and what the user's own settings have below `data`, `model` and `lr_scheduler`.
The arguments of a DataLoader are those of the user's own data module, under names that nothing tells.
"""

from autotune.core.common_names import CLIP_NORM, CLIP_VALUE, LIGHTNINGS, PERSISTENT, PIN, WEIGHT_DECAY
from autotune.core.settings import (
    ACCUMULATION,
    COMPILE,
    LEARNING_RATE,
    MICRO_BATCH,
    PRECISION,
    PREFETCH,
    PROCESSES,
    SEED,
    WORKERS,
)
from autotune.export import plain
from autotune.export.said import Words, at, said, word
from autotune.export.winner import Exported, Winner

NAME = "lightning"
_OTHER = "transformers"  # the kind of workload whose settings below `trainer` are another trainer's
_FULL = LIGHTNINGS["fp32"]
_PRECISIONS = {**LIGHTNINGS, "torch-default": _FULL, "tf32": _FULL, "fp8": "transformer-engine"}
_LOADER = "an argument of your DataLoader, or of the data module that makes it"
_MODULE = "of your LightningModule"
_OWN = ("trainer", "data", "model", "lr_scheduler")
WORDS = Words(
    {
        PRECISION: word("trainer.precision", _PRECISIONS),
        ACCUMULATION: at("trainer.accumulate_grad_batches"),
        CLIP_NORM: lambda value: {
            "trainer.gradient_clip_val": value,
            "trainer.gradient_clip_algorithm": "norm",
        },
        CLIP_VALUE: lambda value: {
            "trainer.gradient_clip_val": value,
            "trainer.gradient_clip_algorithm": "value",
        },
        SEED: at("seed_everything"),
        PROCESSES: at("trainer.devices"),
    },
    {f"{name}.": f"{name}." for name in _OWN},
    {
        MICRO_BATCH: _LOADER,
        WORKERS: _LOADER,
        PIN: _LOADER,
        PERSISTENT: _LOADER,
        PREFETCH: _LOADER,
        LEARNING_RATE: _MODULE,
        WEIGHT_DECAY: _MODULE,
        COMPILE: "torch.compile(module) before trainer.fit",
        f"{PRECISION}=tf32": "torch.set_float32_matmul_precision('high') in the script",
    },
)


def render(winner: Winner) -> Exported:
    is_anothers = winner.workload.entry_point == _OTHER
    values, unsaid = said(winner, WORDS.without_own() if is_anothers else WORDS, NAME)
    return Exported(plain.yaml_of(winner, values, unsaid), unsaid)
