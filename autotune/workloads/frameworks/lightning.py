"""PyTorch Lightning, as `lightning` or `pytorch_lightning`."""

import math
import re
from collections.abc import Mapping

from autotune.core import common_names as common
from autotune.core import settings as known
from autotune.core.common_names import LIGHTNINGS, LIGHTNINGS_SHORT
from autotune.core.settings import Setting
from autotune.workloads.base import Cadence
from autotune.workloads.frameworks.framework import ConfigFile, Framework, Says

_INTERVAL, _EPOCHS = "trainer.val_check_interval", "trainer.check_val_every_n_epoch"
# Settings of the work between steps, which leave the steps unchanged.
_BETWEEN_STEPS = {
    "trainer.log_every_n_steps": "how often metrics are written",
    "trainer.enable_progress_bar": "drawn between steps",
    "trainer.enable_model_summary": "written once",
    "trainer.enable_checkpointing": "written between steps",
    "trainer.num_sanity_val_steps": "before the first step; a trial has none",
    _INTERVAL: "a trial has the evaluations of its budget",
    _EPOCHS: "a trial has the evaluations of its budget",
    "trainer.detect_anomaly": "looks for NaN after every backward pass",
    "trainer.profiler": "measures between steps",
    "trainer.barebones": "leaves out everything but the steps",
}


def _for_trial(settings: Mapping[str, Setting], samples: int, evaluations: int) -> dict[str, Setting]:
    """Spaces validations evenly over a trial, each after a whole optimizer step, the last one at its end."""
    if known.MICRO_BATCH not in settings:
        return {}  # the number of batches is unknown: the script's own schedule stays
    steps = math.ceil(samples / (evaluations * known.effective_batch(settings)))
    batches = steps * int(settings.get(known.ACCUMULATION) or 1)
    return {_INTERVAL: batches, _EPOCHS: None}  # counted across epochs


def _between_evaluations(settings: Mapping[str, Setting], epoch: int | None) -> int | None:
    """Returns the samples between two validations; None if the settings do not say."""
    interval, epochs = settings.get(_INTERVAL), settings.get(_EPOCHS, 1)
    if isinstance(interval, int):  # batches of each process; a float is a fraction of an epoch
        batch = int(settings.get(known.MICRO_BATCH) or 1) * int(settings.get(known.PROCESSES) or 1)
        return interval * batch if known.MICRO_BATCH in settings else None
    if epoch is None or not isinstance(epochs, int) or not {_INTERVAL, _EPOCHS} & settings.keys():
        return None
    return max(1, round(epoch * epochs * float(interval or 1.0)))


_LOADER = "an argument of your DataLoader, or of the data module that makes it"
_MODULE = "of your LightningModule"
_FULL = LIGHTNINGS["fp32"]
_PRECISIONS = {**LIGHTNINGS, "torch-default": _FULL, "tf32": _FULL, "fp8": "transformer-engine"}


def _clips(algorithm: str) -> Says:
    return lambda value: {"trainer.gradient_clip_val": value, "trainer.gradient_clip_algorithm": algorithm}


# The config of a LightningCLI (lightning.ai/docs/pytorch/stable/cli): the trainer's settings, and those
# that the user has below `data`, `model` and `lr_scheduler`.
_FILE = ConfigFile(
    "yaml",
    "a LightningCLI: python SCRIPT fit --config {file}",
    {
        known.PRECISION: lambda v: {"trainer.precision": _PRECISIONS[v]} if v in _PRECISIONS else None,
        known.ACCUMULATION: "trainer.accumulate_grad_batches",
        common.CLIP_NORM: _clips("norm"),
        common.CLIP_VALUE: _clips("value"),
        known.SEED: "seed_everything",
        known.PROCESSES: "trainer.devices",
    },
    {
        **dict.fromkeys(
            (known.MICRO_BATCH, known.WORKERS, known.PREFETCH, common.PIN, common.PERSISTENT), _LOADER
        ),
        **dict.fromkeys((known.LEARNING_RATE, common.WEIGHT_DECAY), _MODULE),
        known.COMPILE: "torch.compile(module) before trainer.fit",
        f"{known.PRECISION}=tf32": "torch.set_float32_matmul_precision('high') in the script",
    },
    own=re.compile(r"((?:trainer|data|model|lr_scheduler)\..*)"),
    is_common=True,
)

LIGHTNING = Framework(
    kind="lightning",
    objects=("trainer", "loader", "optimizer"),
    roles={
        known.MICRO_BATCH: ("loader.batch_size",),
        known.ACCUMULATION: ("trainer.accumulate_grad_batches",),
        "precision": ("trainer.precision",),
        "num_workers": ("loader.num_workers",),
        "prefetch_factor": ("loader.prefetch_factor",),
        "learning_rate": ("optimizer.lr",),
        "weight_decay": ("optimizer.weight_decay",),
    },
    words={"precision": {ours: (word, *LIGHTNINGS_SHORT[ours]) for ours, word in LIGHTNINGS.items()}},
    checkpoint="autotune.ckpt",
    for_trial=_for_trial,
    cadence=Cadence(_INTERVAL, _between_evaluations),
    file=_FILE,
    known=(
        *map(known.result_setting, ("trainer.gradient_clip_val", "trainer.gradient_clip_algorithm")),
        *(known.side_setting(name, about) for name, about in _BETWEEN_STEPS.items()),
        known.KnownSetting(
            "trainer.benchmark",
            "has cuDNN find its fastest algorithms",
            moves_result=known.Result.REORDERED,
            needs={True: known.FOR_CUDA},
        ),
        known.KnownSetting(
            "trainer.deterministic", "uses only deterministic algorithms", moves_result=known.Result.REORDERED
        ),
        known.pinning_setting("loader.pin_memory"),
        known.loader_setting("loader.persistent_workers", "workers live through all epochs"),
        known.KnownSetting(
            "loader.drop_last",
            "leaves out the last, smaller batch of an epoch",
            moves_memory=known.MemoryEffect.NOT,
        ),
    ),
)
