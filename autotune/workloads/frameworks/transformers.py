"""Transformers' Trainer, trainers derived from it, and scripts that use Accelerate."""

import math
import re
from collections.abc import Mapping
from typing import Any

from autotune.core import common_names as common
from autotune.core import settings as known
from autotune.core.common_names import ACCELERATES, OFF
from autotune.core.settings import Setting
from autotune.inside.site.autotune_wire import IN_TRIAL, TRAINER_PRECISIONS
from autotune.workloads.base import Cadence
from autotune.workloads.frameworks.framework import ConfigFile, Framework

_EVAL_STEPS = "trainer.eval_steps"
_OF_SCHEDULE = "the schedule stays that of the whole training"

# Unlisted settings may change everything: optim, packing, auto_find_batch_size, ...
_KNOWN = (
    known.result_setting("trainer.warmup_steps", _OF_SCHEDULE),
    known.result_setting("trainer.warmup_ratio", _OF_SCHEDULE),
    known.result_setting("trainer.lr_scheduler_type", _OF_SCHEDULE),
    *map(known.result_setting, ("trainer.adam_beta1", "trainer.adam_beta2", "trainer.adam_epsilon")),
    known.result_setting("trainer.label_smoothing_factor", "concerns only the loss"),
    known.KnownSetting(
        "trainer.max_grad_norm",
        "0: no clipping; clipping takes a little time",
        moves_memory=known.MemoryEffect.NOT,
    ),
    known.side_setting("trainer.logging_steps", "each time, the loss is fetched from the GPU"),
    known.side_setting("trainer.logging_nan_inf_filter", "fetches the loss from the GPU at every step"),
    known.side_setting("trainer.eval_steps", "a trial has the evaluations of its budget"),
    known.side_setting("trainer.save_steps", "a trial saves when it is stopped, and now and then"),
    known.side_setting("trainer.include_num_input_tokens_seen", "tokens are counted on the GPU"),
    known.pinning_setting("trainer.dataloader_pin_memory"),
    known.loader_setting(
        "trainer.dataloader_persistent_workers", "workers need not be started for every epoch"
    ),
    known.KnownSetting(
        "trainer.train_sampling_strategy", "batches of rows of similar length have less padding"
    ),
    known.KnownSetting(
        "model.attn_implementation",
        "eager, sdpa, or flash_attention_2 if it is installed",
        moves_result=known.Result.REORDERED,
        needs={"flash_attention_2": known.Needs(cuda=True, compute_capability=(8, 0))},
    ),
    known.KnownSetting("trainer.max_length", "memory per sample grows with it", power=1),
)


def _for_trial(settings: Mapping[str, Setting], samples: int, evaluations: int) -> dict[str, Setting]:
    """Schedules evaluations by samples or tokens, which the hook counts."""
    return {f"{IN_TRIAL}.evaluate_every": math.ceil(samples / evaluations)}


def _between_evaluations(settings: Mapping[str, Setting], epoch: int | None) -> int | None:
    """Returns the samples between evaluations; None if unknown, as for a fractional `eval_steps`."""
    match settings.get("trainer.eval_strategy"), settings.get(_EVAL_STEPS):
        case "epoch", _:
            return epoch
        case "steps", int(steps) if steps >= 1 and known.MICRO_BATCH in settings:
            return steps * known.effective_batch(settings)
    return None


_ROLES = {
    "micro_batch_size": ("trainer.per_device_train_batch_size", "loader.batch_size"),
    "accumulation_steps": ("trainer.gradient_accumulation_steps", "accelerator.gradient_accumulation_steps"),
    "precision": ("trainer.precision", "accelerator.mixed_precision"),
    "num_workers": ("trainer.dataloader_num_workers", "loader.num_workers"),
    "prefetch_factor": ("trainer.dataloader_prefetch_factor", "loader.prefetch_factor"),
    "learning_rate": ("trainer.learning_rate", "optimizer.lr"),
    "weight_decay": ("trainer.weight_decay", "optimizer.weight_decay"),
    "activation_checkpointing": ("trainer.gradient_checkpointing", "trainer.activation_checkpointing"),
    "compile": ("trainer.torch_compile",),
    "seed": ("trainer.seed",),
}
_MODES = ("reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
# Arguments that are settings of scripts under the same names.
_SAME = (
    *("num_train_epochs", "max_steps", "warmup_steps", "warmup_ratio", "lr_scheduler_type", "optim"),
    *("adam_beta1", "adam_beta2", "adam_epsilon", "label_smoothing_factor", "per_device_eval_batch_size"),
    *("eval_strategy", "eval_steps", "save_strategy", "save_steps", "logging_steps", "torch_compile_mode"),
)


def _switches(precision: Any) -> Mapping[str, Any] | None:
    switches = TRAINER_PRECISIONS.get(precision)
    return switches and {name: value for name, value in switches.items() if value is not None}


def _compile(value: Any) -> Mapping[str, Any]:
    return {"torch_compile": value not in OFF, **({"torch_compile_mode": value} if value in _MODES else {})}


# TrainingArguments (huggingface.co/docs/transformers/main_classes/trainer).
_FILE = ConfigFile(
    "json",
    "HfArgumentParser(TrainingArguments).parse_json_file('{file}', allow_extra_keys=True)",
    {
        **{role: paths[0].removeprefix("trainer.") for role, paths in _ROLES.items()},
        common.PIN: lambda value: {"dataloader_pin_memory": value not in OFF},
        common.PERSISTENT: lambda value: {"dataloader_persistent_workers": value not in OFF},
        known.PRECISION: _switches,
        # Every version knows this name, though newer ones warn; `False` is the default.
        known.CHECKPOINTING: lambda value: {} if value in OFF else {"gradient_checkpointing": True},
        known.COMPILE: _compile,
        common.CLIP_NORM: "max_grad_norm",
        **{name: name for name in _SAME},
    },
    {
        known.PROCESSES: "torchrun --nproc_per_node, or another launcher",
        common.CLIP_VALUE: "the Trainer clips by the norm",
        f"{known.PRECISION}=fp8": "of the Accelerator",
        "model.attn_implementation": "of from_pretrained in the script",
    },
    own=re.compile(r"trainer\.(?!precision$)(.*)"),  # `trainer.precision` is the tuner's own name
    begins={"output_dir": "trained"},  # older versions require it
    without_workers={"dataloader_prefetch_factor": None, "dataloader_persistent_workers": False},
)

TRANSFORMERS = Framework(
    kind="transformers",
    objects=("trainer", "model", "accelerator", "loader", "optimizer", IN_TRIAL),
    roles=_ROLES,
    words={"precision": {"fp32": ("fp32", ACCELERATES["fp32"])}},
    checkpoint="checkpoint-*/trainer_state.json",  # the last file written of a checkpoint
    known=_KNOWN,
    for_trial=_for_trial,
    cadence=Cadence(_EVAL_STEPS, _between_evaluations),
    units=("samples", "tokens"),
    file=_FILE,
)
