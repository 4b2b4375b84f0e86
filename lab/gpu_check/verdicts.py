"""What the figures of a check are worth. Pure: figures in, verdicts out."""

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autotune.cli.gpus import Torch
from autotune.core import units
from autotune.storage.records import COMPILING
from autotune.system.nvml import Gpu

Record = Mapping[str, Any]

LOSS_SHARE, FP8_LOSS_SHARE = 0.05, 0.1  # of fp32's loss: dropout alone moves it by about a fiftieth
STAMPED_SHARE = 0.03
_TOTAL_SHARE = 0.05  # of the memory: NVML counts what the driver keeps for itself, torch does not
_LAST_LOSSES = 15
_STEPS_TO_COMPILE = 3  # the first one, and one more for the batch's size, which is fixed until it changes
_FIRST_EVALUATION = 3.0  # times the second one: the first loads kernels, and writes a first checkpoint
_BEGUN = "epoch_begun_s"


@dataclass(frozen=True)
class Found:
    """The result of a point: whether it holds, None where it was not checked; a line with its figure.

    `figures` are the same for a program to read, and more of them.
    """

    name: str
    ok: bool | None
    detail: str
    figures: Mapping[str, Any] = field(default_factory=dict)


def agreement(known: Sequence[Gpu], told: Torch) -> list[str]:
    """Returns in what NVML and torch differ: the GPUs and their order, memory, compute capability."""
    seen = [f"GPU-{one['uuid']}" for one in told.devices]
    if seen != [gpu.uuid for gpu in known]:
        return [f"NVML has {len(known)} GPUs and torch {len(seen)}, or they are in another order"]
    pairs = zip(known, told.devices, strict=True)
    return [f"{gpu.label}: {what}" for gpu, one in pairs for what in _differences(gpu, one)]


def _differences(gpu: Gpu, seen: Mapping[str, Any]) -> list[str]:
    differences = []
    if not (1 - _TOTAL_SHARE) * gpu.memory_bytes <= seen["memory_bytes"] <= gpu.memory_bytes:
        sizes = [units.format_bytes(one) for one in (gpu.memory_bytes, seen["memory_bytes"])]
        differences.append(f"NVML says {sizes[0]}, torch {sizes[1]}")
    if gpu.compute_capability != tuple(seen["compute_capability"]):
        capabilities = [
            ".".join(map(str, one)) for one in (gpu.compute_capability, seen["compute_capability"])
        ]
        differences.append(f"NVML says capability {capabilities[0]}, torch {capabilities[1]}")
    return differences


def last_loss(records: Sequence[Record], samples: int) -> float | None:
    """The mean loss of the last steps up to `samples`; None where there was no step.

    A trial takes more steps until it hears that it is over: how many depends on how busy the machine is.
    """
    steps = [record for record in records if "train_loss" in record and record["samples"] <= samples]
    losses = [step["train_loss"] for step in steps]
    return statistics.fmean(losses[-_LAST_LOSSES:]) if losses else None


def is_near(loss: float, reference: float, precision: str) -> bool:
    """Whether a precision trains as fp32 does, by what its loss is after some steps of the same training."""
    allowed = FP8_LOSS_SHARE if precision == "fp8" else LOSS_SHARE
    return abs(loss / reference - 1) <= allowed  # a loss that is no number is near to nothing


def epochs_rate(records: Sequence[Record]) -> float | None:
    """Samples per second of the whole epochs but the first, by the times that `watched` has taken."""
    begun = [(record[_BEGUN], record["samples"]) for record in records if _BEGUN in record][1:]
    if len(begun) < 2:
        return None
    (first_s, before), (last_s, after) = begun[0], begun[-1]
    return float((after - before) / (last_s - first_s))


def is_stamped_well(stamped: float, whole: float) -> bool:
    """Whether the speed that the tuner has stamped is that of whole epochs."""
    return abs(stamped / whole - 1) <= STAMPED_SHARE


def late_compilations(records: Sequence[Record]) -> list[int]:
    """The steps, counted from 1, before which something was compiled though the first ones were over."""
    steps = [record for record in records if "train_loss" in record]
    return [n for n, record in enumerate(steps, 1) if n > _STEPS_TO_COMPILE and record.get(COMPILING)]


def evaluations_s(records: Sequence[Record], quality: str) -> list[float]:
    """How long each evaluation took, from the end of the step before it."""
    return [b["at_s"] - a["at_s"] for a, b in itertools.pairwise(records) if quality in b]


def is_without_plans(seconds: Sequence[float]) -> bool:
    """Whether the first evaluation has no more to prepare than kernels are: not a plan for every word."""
    return seconds[0] <= _FIRST_EVALUATION * seconds[1]


def waits(records: Sequence[Record]) -> float | None:
    """How often a step has waited for its GPU, as far as torch can tell; None where nothing was counted."""
    counted = [record["waits"] for record in records if "waits" in record]
    return statistics.fmean(counted) if counted else None
