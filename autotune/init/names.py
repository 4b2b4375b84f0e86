"""Common names of settings in projects, and the roles that they imply."""

from collections.abc import Iterable

from autotune.core.common_names import ENDS, NAMES, OF_SCHEDULES
from autotune.core.settings import LEARNING_RATE
from autotune.init.options import Option

STEPS = frozenset({*ENDS, *OF_SCHEDULES})
EVERY = (
    *("eval_interval", "eval_steps", "eval_every", "evaluate_every", "val_interval", "val_every"),
    *("valid_steps", "val_check_interval", "validate_every", "eval_freq", "val_freq"),
    *("eval_iters_interval", "test_interval"),
)
PLACES = frozenset(
    {
        *("save_dir", "out_dir", "output_dir", "outdir", "output_path", "checkpoint_dir", "ckpt_dir"),
        *("log_dir", "logdir", "record_dir", "result_dir", "results_dir", "exp_dir", "work_dir"),
        *("default_root_dir", "run_dir", "save_path", "model_dir", "snapshot_dir", "rundir", "savedir"),
        "hydra.run.dir",
    }
)
RESUME = ("resume", "resume_from_checkpoint", "resume_from", "ckpt_path", "load_checkpoint", "resume_path")
DEVICE = ("device", "accelerator")


def role_of(options: Iterable[Option], role: str) -> Option | None:
    """Returns the option with the most common name for a role; None if there is none."""
    names = NAMES[role]
    candidates = [one for one in options if one.key in names]
    if role == LEARNING_RATE:
        candidates = [one for one in candidates if one.value is not None] or candidates or _rates(options)
    return min(candidates, key=lambda one: names.index(one.key) if one.key in names else 0, default=None)


def _rates(options: Iterable[Option]) -> list[Option]:
    """Returns the largest of several learning rates, such as `lr_encoder` and `lr_decoder`, in a list."""
    rates = [one for one in options if is_rate(one)]
    return sorted(rates, key=lambda one: -float(one.value or 0))[:1]


def is_rate(option: Option) -> bool:
    """Returns True for the learning rate of a part of the model."""
    is_number = isinstance(option.value, float | int) and not isinstance(option.value, bool)
    return (
        is_number
        and (option.key.startswith("lr_") or option.key.endswith("_lr"))
        and 0 < float(option.value or 0) < 1
    )
