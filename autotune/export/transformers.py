"""TrainingArguments (huggingface.co/docs/transformers/main_classes/trainer) as JSON for HfArgumentParser.

Its `parse_json_file` has to be given `allow_extra_keys=True`, because the evidence is a field of its own.
"""

from collections.abc import Mapping
from typing import Any

from autotune.core.common_names import CLIP_NORM, CLIP_VALUE, PERSISTENT, PIN
from autotune.core.settings import CHECKPOINTING, COMPILE, PRECISION, PROCESSES
from autotune.export import names, plain
from autotune.export.said import Words, at, said, whether
from autotune.export.winner import Exported, Winner
from autotune.workloads.frameworks.transformers import TRANSFORMERS

NAME = "transformers"
_OUTPUT = {"output_dir": "trained"}  # older versions ask for it
_TF32 = {"fp32": False, "tf32": True}
_PRECISIONS = ("fp32", "torch-default", "tf32", "bf16", "fp16")
_MODES = ("reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
# What goes with workers alone, as a trial without them has it: no loader is made with anything else.
WITHOUT_WORKERS: Mapping[str, Any] = {
    "dataloader_prefetch_factor": None,
    "dataloader_persistent_workers": False,
}
# Arguments that are settings of scripts under the same names.
_SAME = (
    *("num_train_epochs", "max_steps", "warmup_steps", "warmup_ratio", "lr_scheduler_type", "optim"),
    *("adam_beta1", "adam_beta2", "adam_epsilon", "label_smoothing_factor", "per_device_eval_batch_size"),
    *("eval_strategy", "eval_steps", "save_strategy", "save_steps", "logging_steps", "torch_compile_mode"),
)


def _precision(value: Any) -> Mapping[str, Any] | None:
    if value not in _PRECISIONS:
        return None
    tf32 = {"tf32": _TF32[value]} if value in _TF32 else {}
    return {"bf16": value == "bf16", "fp16": value == "fp16", **tf32}


def _compile(value: Any) -> Mapping[str, Any]:
    mode = {"torch_compile_mode": value} if value in _MODES else {}
    return {"torch_compile": value not in names.OFF, **mode}


def _checkpointing(value: Any) -> Mapping[str, Any]:
    """Under the name that every version knows, of which newer ones warn; off is what it is by default."""
    return {} if value in names.OFF else {"gradient_checkpointing": True}


_OF_TRAINER = "trainer."
# A script's own argument for each of the tuner's settings, which the workload of that kind has as a role.
_BY_ROLE = {role: at(path.removeprefix(_OF_TRAINER)) for role, path in TRANSFORMERS.roles.items()}
WORDS = Words(
    {
        **_BY_ROLE,
        PIN: whether("dataloader_pin_memory"),
        PERSISTENT: whether("dataloader_persistent_workers"),
        PRECISION: _precision,
        CHECKPOINTING: _checkpointing,
        COMPILE: _compile,
        CLIP_NORM: at("max_grad_norm"),
        **{name: at(name) for name in _SAME},
    },
    {_OF_TRAINER: ""},
    {
        PROCESSES: "torchrun --nproc_per_node, or another launcher",
        CLIP_VALUE: "the Trainer clips by the norm",
        f"{PRECISION}=fp8": "of the Accelerator",
        "model.attn_implementation": "of from_pretrained in the script",
    },
    frozenset({"trainer.precision"}),  # a name of ours
)


def render(winner: Winner) -> Exported:
    is_own = winner.workload.entry_point == NAME  # what others have below `trainer` has Lightning's names
    values, unsaid = said(winner, WORDS if is_own else WORDS.without_own(), NAME)
    if not values.get("dataloader_num_workers"):
        values |= {name: off for name, off in WITHOUT_WORKERS.items() if name in values}
    return Exported(plain.json_of(winner, {**_OUTPUT, **values}, unsaid), unsaid)
