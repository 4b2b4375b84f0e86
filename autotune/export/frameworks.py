"""Settings translated into the names and values of Lightning and Transformers. Pure."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from autotune.core import common_names as common
from autotune.core import settings
from autotune.core.errors import InputError
from autotune.export.winner import OFF, Given, Values, Winner
from autotune.space.naming import nest
from autotune.workloads.frameworks.transformers import TRANSFORMERS

# Translates a value of the tuner into values by path in a file; None: the framework cannot express it.
Says = Callable[[Any], Mapping[str, Any] | None]


class _Words(NamedTuple):
    """Vocabulary of the format `name`."""

    name: str
    says: Mapping[str, str | Says]  # by meaning; a text is the path that takes the value unchanged
    notes: Mapping[str, str]  # by meaning, or by `precision=tf32`: the place to make the setting instead
    own: str  # regex of settings under the framework's own names; its group is their path in the file


_LOADER = "an argument of your DataLoader, or of the data module that makes it"
_MODULE = "of your LightningModule"
_FULL = common.LIGHTNINGS["fp32"]
_PRECISIONS = {**common.LIGHTNINGS, "torch-default": _FULL, "tf32": _FULL, "fp8": "transformer-engine"}


def _clips(algorithm: str) -> Says:
    return lambda value: {
        "trainer.gradient_clip_val": value,
        "trainer.gradient_clip_algorithm": algorithm,
    }


_LIGHTNING = _Words(
    "lightning",
    {
        settings.PRECISION: lambda v: {"trainer.precision": _PRECISIONS[v]} if v in _PRECISIONS else None,
        settings.ACCUMULATION: "trainer.accumulate_grad_batches",
        common.CLIP_NORM: _clips("norm"),
        common.CLIP_VALUE: _clips("value"),
        settings.SEED: "seed_everything",
        settings.PROCESSES: "trainer.devices",
    },
    {
        **dict.fromkeys((settings.MICRO_BATCH, settings.WORKERS, settings.PREFETCH), _LOADER),
        **dict.fromkeys((common.PIN, common.PERSISTENT), _LOADER),
        **dict.fromkeys((settings.LEARNING_RATE, common.WEIGHT_DECAY), _MODULE),
        settings.COMPILE: "torch.compile(module) before trainer.fit",
        f"{settings.PRECISION}=tf32": "torch.set_float32_matmul_precision('high') in the script",
    },
    own=r"((?:trainer|data|model|lr_scheduler)\..*)",
)


def lightning(winner: Winner) -> Values:
    """Returns the config of a LightningCLI (lightning.ai/docs/pytorch/stable/cli).

    Contains the trainer's settings, and the user's own below `data`, `model` and `lr_scheduler`.
    """
    is_anothers = winner.workload.entry_point == TRANSFORMERS.kind  # has its own `trainer`
    return _translated(winner, _LIGHTNING._replace(own="") if is_anothers else _LIGHTNING)


# Values that a DataLoader requires of worker settings if it has no workers.
WITHOUT_WORKERS: Mapping[str, Any] = {
    "dataloader_prefetch_factor": None,
    "dataloader_persistent_workers": False,
}
_MODES = ("reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
# Arguments that are settings of scripts under the same names.
_SAME = (
    *("num_train_epochs", "max_steps", "warmup_steps", "warmup_ratio", "lr_scheduler_type", "optim"),
    *("adam_beta1", "adam_beta2", "adam_epsilon", "label_smoothing_factor", "per_device_eval_batch_size"),
    *("eval_strategy", "eval_steps", "save_strategy", "save_steps", "logging_steps", "torch_compile_mode"),
)


def _switches(precision: Any) -> Mapping[str, Any] | None:
    if precision not in {"fp32", "torch-default", "tf32", "bf16", "fp16"}:
        return None
    tf32 = {"tf32": precision == "tf32"} if precision in {"fp32", "tf32"} else {}
    return {"bf16": precision == "bf16", "fp16": precision == "fp16", **tf32}


def _compile(value: Any) -> Mapping[str, Any]:
    return {"torch_compile": value not in OFF, **({"torch_compile_mode": value} if value in _MODES else {})}


def _checkpointing(value: Any) -> Mapping[str, Any]:
    """Uses the name that every version knows, though newer ones warn; off is the default and left out."""
    return {} if value in OFF else {"gradient_checkpointing": True}


_TRANSFORMERS = _Words(
    TRANSFORMERS.kind,
    {
        **{role: path.removeprefix("trainer.") for role, path in TRANSFORMERS.roles.items()},
        common.PIN: lambda value: {"dataloader_pin_memory": value not in OFF},
        common.PERSISTENT: lambda value: {"dataloader_persistent_workers": value not in OFF},
        settings.PRECISION: _switches,
        settings.CHECKPOINTING: _checkpointing,
        settings.COMPILE: _compile,
        common.CLIP_NORM: "max_grad_norm",
        **{name: name for name in _SAME},
    },
    {
        settings.PROCESSES: "torchrun --nproc_per_node, or another launcher",
        common.CLIP_VALUE: "the Trainer clips by the norm",
        f"{settings.PRECISION}=fp8": "of the Accelerator",
        "model.attn_implementation": "of from_pretrained in the script",
    },
    own=r"trainer\.(?!precision$)(.*)",  # `trainer.precision` is the tuner's own name
)


def transformers(winner: Winner) -> Values:
    """Returns TrainingArguments (huggingface.co/docs/transformers/main_classes/trainer)."""
    is_own = winner.workload.entry_point == TRANSFORMERS.kind
    values, unsaid = _translated(winner, _TRANSFORMERS if is_own else _TRANSFORMERS._replace(own=""))
    off = {} if values.get("dataloader_num_workers") else WITHOUT_WORKERS
    present = {name: value for name, value in off.items() if name in values}
    return Values({"output_dir": "trained", **values, **present}, unsaid)  # older versions require output_dir


def _translated(winner: Winner, words: _Words) -> Values:
    """Returns the settings that a framework can express; raises InputError if there are none."""
    own: dict[str, Any] = {}
    by_meaning: dict[str, Any] = {}
    unsaid: list[str] = []
    for given in winner.every:
        if match := re.fullmatch(words.own, given.path):
            own[match[1]] = given.theirs
            continue
        says = words.says.get(given.meaning, lambda _: None)
        translation = {says: given.ours} if isinstance(says, str) else says(given.ours)
        by_meaning |= translation or {}
        note = words.notes.get(f"{given.meaning}={given.ours}")
        if note or translation is None:
            unsaid.append(_line(given, note or words.notes.get(given.meaning, "")))
    if not (own or by_meaning):
        raise InputError(f"--format {words.name}: none of the settings is one that it has a place for")
    return Values(nest({**by_meaning, **own}), tuple(unsaid))


def _line(given: Given, note: str) -> str:
    return f"{given.path}: {json.dumps(given.theirs, default=str)}{f' ({note})' if note else ''}"
