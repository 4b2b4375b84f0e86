"""What `accelerate launch --config_file` reads (huggingface.co/docs/accelerate/package_reference/cli)."""

from typing import Any

from autotune.core.common_names import ACCELERATES, CLIP_NORM, OFFLOAD_OPTIMIZER, OFFLOAD_PARAM, ZERO_STAGE
from autotune.core.settings import ACCUMULATION, COMPILE, MICRO_BATCH, PRECISION, PROCESSES, WORKERS
from autotune.export import names, plain
from autotune.export.said import Words, at, said, word
from autotune.export.winner import Exported, Winner

NAME = "accelerate"
_UNMIXED = ACCELERATES["fp32"]
_PRECISIONS = {**ACCELERATES, "torch-default": _UNMIXED, "tf32": _UNMIXED, "fp8": "fp8"}
_MODES = ("default", "reduce-overhead", "max-autotune")
_DEEPSPEED = "deepspeed_config"
_LOADER = "an argument of your DataLoader"
_CLIPS = "accelerator.clip_grad_norm_ in the script"
_ACCUMULATES = (
    "Accelerator(gradient_accumulation_steps=...) in the script: only with ZeRO it is read from here"
)


def _compile(value: Any) -> dict[str, Any]:
    mode = value if value in _MODES else "default"
    found = {"dynamo_config.dynamo_backend": "INDUCTOR", "dynamo_config.dynamo_mode": mode}
    return {} if value in names.OFF else found


def _processes(value: Any) -> dict[str, Any] | None:
    """A number; what frameworks have besides, such as `auto` or -1, is not known here."""
    is_count = isinstance(value, int) and not isinstance(value, bool) and value > 0
    return {"num_processes": value} if is_count else None


_SAYS = {
    PRECISION: word("mixed_precision", _PRECISIONS),
    COMPILE: _compile,
    PROCESSES: _processes,
}
_NOTES = {
    MICRO_BATCH: _LOADER,
    WORKERS: _LOADER,
    ACCUMULATION: _ACCUMULATES,
    CLIP_NORM: _CLIPS,
    f"{PRECISION}=tf32": "torch.backends.cuda.matmul.allow_tf32 in the script",
}
WORDS = Words(_SAYS, notes=_NOTES)
_WITH_ZERO = Words(
    {
        **_SAYS,
        ACCUMULATION: at(f"{_DEEPSPEED}.gradient_accumulation_steps"),
        CLIP_NORM: at(f"{_DEEPSPEED}.gradient_clipping"),
        ZERO_STAGE: lambda value: {
            f"{_DEEPSPEED}.zero_stage": value,
            f"{_DEEPSPEED}.zero3_init_flag": value == 3,
        },
        OFFLOAD_OPTIMIZER: at(f"{_DEEPSPEED}.offload_optimizer_device"),
        OFFLOAD_PARAM: at(f"{_DEEPSPEED}.offload_param_device"),
    },
    notes=_NOTES,
)


def render(winner: Winner) -> Exported:
    uses_zero = any(names.meant(given.name, {}) == ZERO_STAGE for given in winner.every)
    values, unsaid = said(winner, _WITH_ZERO if uses_zero else WORDS, NAME)
    processes = values.get("num_processes", max(1, winner.gpus))
    several = "MULTI_GPU" if winner.gpus else "MULTI_CPU"
    kind = "DEEPSPEED" if uses_zero else several if processes > 1 else "NO"
    machine = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": kind,
        "num_machines": 1,
        "machine_rank": 0,
        "num_processes": processes,
        "use_cpu": not winner.gpus,
    }
    return Exported(plain.yaml_of(winner, {**machine, **values}, unsaid), unsaid)
