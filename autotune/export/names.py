"""What settings are commonly called, in files and in scripts. Pure."""

from collections.abc import Collection, Mapping, Sequence

from autotune.core.settings import (
    ACCUMULATION,
    CHECKPOINTING,
    COMPILE,
    LEARNING_RATE,
    MICRO_BATCH,
    PRECISION,
    PREFETCH,
    PROCESSES,
    SEED,
    WORKERS,
)

CLIP_NORM, CLIP_VALUE = "clip_norm", "clip_value"
WEIGHT_DECAY, PIN, PERSISTENT = "weight_decay", "pin_memory", "persistent_workers"
ZERO_STAGE, OFFLOAD_OPTIMIZER, OFFLOAD_PARAM = "zero_stage", "offload_optimizer", "offload_param"
OFF = (False, None, "off", "none", "no")

# What is meant, and the ends of the paths that mean it.
COMMON: Mapping[str, Sequence[str]] = {
    MICRO_BATCH: ("batch_size", "per_device_train_batch_size", "train_micro_batch_size_per_gpu"),
    ACCUMULATION: ("gradient_accumulation_steps", "accumulate_grad_batches", "grad_accum_steps"),
    LEARNING_RATE: ("lr",),
    WEIGHT_DECAY: (),
    SEED: ("seed_everything",),
    WORKERS: ("dataloader_num_workers",),
    PROCESSES: ("nproc_per_node", "num_processes", "devices"),
    PREFETCH: ("dataloader_prefetch_factor",),
    PIN: ("dataloader_pin_memory",),
    PERSISTENT: ("dataloader_persistent_workers",),
    PRECISION: ("mixed_precision", "dtype", "torch_dtype"),
    CHECKPOINTING: ("gradient_checkpointing",),
    COMPILE: ("torch_compile",),
    CLIP_NORM: ("max_grad_norm", "gradient_clip_val", "gradient_clipping", "grad_clip", "clip_grad_norm"),
    CLIP_VALUE: ("grad_clip_value",),
    ZERO_STAGE: ("zero_optimization.stage",),
    OFFLOAD_OPTIMIZER: ("offload_optimizer_device", "offload_optimizer.device"),
    OFFLOAD_PARAM: ("offload_param_device", "offload_param.device"),
}
_LIGHTNINGS_CLIPPING, _BY_VALUE = "gradient_clip_val", "gradient_clip_algorithm"


def meant(name: str, values: Mapping[str, object]) -> str:
    """What the setting `name` means, as far as that is known by what it is called; else its own name.

    `values` are those of all settings by their names: one of them says how Lightning clips.
    """
    if ends_with(name, [_LIGHTNINGS_CLIPPING]):
        clips_values = any(v == "value" for key, v in values.items() if ends_with(key, [_BY_VALUE]))
        return CLIP_VALUE if clips_values else CLIP_NORM
    return next((what for what in COMMON if ends_with(name, called(what))), name)


def called(what: str) -> Sequence[str]:
    """What a setting may be called that means `what`."""
    return (what, *COMMON.get(what, ()))


def ends_with(path: str, names: Collection[str]) -> bool:
    """Whether `path` is one of the `names`, or is below something and ends so."""
    return any(path == name or path.endswith(f".{name}") for name in names)
