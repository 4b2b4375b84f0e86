"""Maps the names that projects and frameworks use to settings and precisions. Pure."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from autotune.core import settings

# Settings besides those that the tuner computes with.
CLIP_NORM, CLIP_VALUE = "clip_norm", "clip_value"
WEIGHT_DECAY, PIN, PERSISTENT = "weight_decay", "pin_memory", "persistent_workers"

# Common names by setting, the most usual first: if a project has several of them, the first one counts.
NAMES: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        settings.MICRO_BATCH: (
            *("micro_batch_size", "per_device_train_batch_size", "train_micro_batch_size_per_gpu"),
            *("device_batch_size", "train_batch_size", "batch_size", "batchsize", "bs"),
            *("batch_size_per_gpu", "train_bs", "mbs", "bsz", "samples_per_gpu", "batch"),
        ),
        settings.ACCUMULATION: (
            *("gradient_accumulation_steps", "accumulation_steps", "grad_accum_steps", "accum_iter"),
            *("accum_steps", "accumulate_grad_batches", "grad_accumulation_steps", "grad_accum", "accum"),
            *("update_freq", "iters_to_accumulate", "gradient_accumulate_every", "accumulate"),
        ),
        settings.LEARNING_RATE: (
            *("learning_rate", "lr", "base_lr", "max_lr", "init_lr", "peak_lr", "lr0", "blr"),
        ),
        WEIGHT_DECAY: ("weight_decay",),
        settings.SEED: ("seed", "random_seed", "manual_seed", "manualseed", "seed_everything", "rng_seed"),
        settings.WORKERS: (
            *("num_workers", "dataloader_num_workers", "workers", "n_workers", "n_worker"),
            *("num_data_workers", "loader_workers", "nworkers", "num_worker", "data_workers"),
        ),
        settings.PROCESSES: ("processes", "nproc_per_node", "num_processes", "devices"),
        settings.PREFETCH: ("prefetch_factor", "dataloader_prefetch_factor"),
        PIN: ("pin_memory", "dataloader_pin_memory"),
        PERSISTENT: ("persistent_workers", "dataloader_persistent_workers"),
        settings.PRECISION: (
            *("precision", "dtype", "mixed_precision", "torch_dtype"),
            *("amp_dtype", "amp", "fp16", "bf16", "use_amp"),
        ),
        settings.COMPILE: ("compile", "torch_compile", "torchcompile", "use_compile", "compile_model"),
        settings.CHECKPOINTING: (
            *("gradient_checkpointing", "activation_checkpointing", "grad_checkpointing"),
            *("use_checkpoint", "checkpoint_activations", "grad_checkpoint"),
        ),
        CLIP_NORM: (
            *("clip_norm", "max_grad_norm", "gradient_clip_val", "gradient_clipping"),
            *("grad_clip", "clip_grad_norm"),
        ),
        CLIP_VALUE: ("clip_value", "grad_clip_value"),
        "zero_stage": ("zero_stage", "zero_optimization.stage"),
        "offload_optimizer": ("offload_optimizer", "offload_optimizer_device", "offload_optimizer.device"),
        "offload_param": ("offload_param", "offload_param_device", "offload_param.device"),
    }
)
# Names that mean something else in other projects: the batch of all processes, a schedule's highest rate, a
# switch of one format. They are proposed to the user, but nothing is written to them unasked.
_AMBIGUOUS = frozenset(
    {
        *("train_batch_size", "bs", "bsz", "batch", "accum", "accumulate", "update_freq", "workers"),
        *("base_lr", "max_lr", "init_lr", "peak_lr", "lr0", "blr"),
        *("amp", "use_amp", "fp16", "bf16"),
    }
)

# Settings that end a training, and those that count optimizer steps of its learning-rate schedule.
ENDS: Sequence[str] = (
    *("max_iters", "max_steps", "num_train_steps", "max_train_steps", "train_steps", "total_steps"),
    *("num_steps", "steps", "n_steps", "train_iters", "num_iterations", "max_iterations", "iterations"),
    *("total_iters", "num_iters", "n_iters", "iters", "niter", "n_iter", "max_iter", "max_step", "num_step"),
    *("max_updates", "max_update", "num_updates", "num_batches", "n_batches"),
)
OF_SCHEDULES: Sequence[str] = (
    *("warmup_steps", "warmup_iters", "num_warmup_steps", "lr_warmup_steps"),
    *("lr_decay_iters", "decay_steps", "lr_decay_steps"),
)
EPOCHS: Sequence[str] = (
    *("epochs", "num_epochs", "n_epochs", "max_epochs", "num_train_epochs", "train_epochs", "total_epochs"),
    *("nepochs", "nb_epochs", "num_epoch", "n_epoch", "max_epoch", "nepoch", "epoch"),
)

# Sizes of samples and models: the memory of a sample grows with this power of the size.
SIZES: Mapping[str, int] = MappingProxyType(
    {
        **dict.fromkeys(("max_seq_length", "max_seq_len", "seq_length", "seq_len", "sequence_length"), 1),
        **dict.fromkeys(("max_length", "max_len", "block_size", "context_length", "num_frames"), 1),
        **dict.fromkeys(("hidden_size", "hidden_dim", "d_model", "n_embd", "embed_dim", "width"), 1),
        **dict.fromkeys(("channels", "num_layers", "n_layers", "n_layer", "num_hidden_layers", "depth"), 1),
        **dict.fromkeys(("image_size", "img_size", "resolution", "input_size", "crop_size"), 2),
    }
)

# Values that switch a setting off.
OFF = (False, None, "off", "none", "no")

# Each framework's words for the precisions that all of them have.
LIGHTNINGS = MappingProxyType({"fp32": "32-true", "bf16": "bf16-mixed", "fp16": "16-mixed"})
LIGHTNINGS_SHORT: Mapping[str, Sequence[str | int]] = MappingProxyType(
    {"fp32": ("32", 32), "bf16": ("bf16",), "fp16": ("16", 16)}
)
ACCELERATES = MappingProxyType({"fp32": "no", "bf16": "bf16", "fp16": "fp16"})
TORCHS = MappingProxyType({"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"})

SETTINGS = {name: setting for setting, names in NAMES.items() for name in names}
PRECISIONS = {name: ours for each in (LIGHTNINGS, ACCELERATES, TORCHS) for ours, name in each.items()}


def unambiguous_names(setting: str) -> Sequence[str]:
    """Returns the names that mean `setting` in every project; only `setting` if the table has none."""
    return tuple(name for name in NAMES.get(setting, (setting,)) if name not in _AMBIGUOUS)
