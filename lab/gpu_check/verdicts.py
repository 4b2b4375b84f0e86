"""Judges the figures of a check. Pure: figures in, verdicts out."""

import itertools
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autotune.core import units
from autotune.sessions.gpus import DeviceVerdict
from autotune.system.nvml import Gpu

Record = Mapping[str, Any]

LOSS_SHARE, FP8_LOSS_SHARE = 0.05, 0.1  # of fp32's loss; dropout alone changes it by about 2%
STAMPED_SHARE = 0.03
_TOTAL_SHARE = 0.05  # of the memory: NVML includes the driver's own use, torch does not
_OTHERS_SHARE = 0.05  # of the memory: a desktop's own use, and the driver's
_LAST_LOSSES = 15
_FIRST_EVALUATION = 3.0  # times the second: the first loads kernels and writes the first checkpoint
_BEGUN = "epoch_begun_s"


@dataclass(frozen=True)
class Found:
    """The result of a point of the check."""

    name: str
    ok: bool | None  # None if it was not checked
    detail: str  # one line with the figure
    figures: Mapping[str, Any] = field(default_factory=dict)  # for programs: all figures


def differences(looked: Iterable[DeviceVerdict]) -> list[str]:
    """Returns the differences between NVML and torch: in GPUs, their memory and compute capability.

    A GPU that NVML cannot query is not compared. CUDA shows one MIG slice at a time, so each is compared by
    itself.
    """
    named = [(one.label, one.gpu, one.seen) for one in looked if one.gpu]
    return [
        f"{label}: {what}"
        for label, gpu, seen in named
        for what in (_differences(gpu, seen) if seen else ["torch does not see it"])
    ]


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


def reason_not_to_fill(gpus: Iterable[Gpu], kernel: str, host_bytes: int) -> str | None:
    """Returns why the whole memory of these GPUs must not be taken, None if nobody else would miss it."""
    gpus = tuple(gpus)
    if any(gpu.memory_bytes == host_bytes for gpu in gpus):
        return "its memory is the host's"
    if "microsoft" in kernel.lower():
        return "under WSL, a full GPU takes memory of the host"
    used = [gpu for gpu in gpus if gpu.used_bytes > _OTHERS_SHARE * gpu.memory_bytes]
    return f"others use {units.format_bytes(used[0].used_bytes)} of {used[0].label}" if used else None


def last_loss(records: Sequence[Record], samples: int) -> float | None:
    """Returns the mean loss of the last steps up to `samples`; None if there was no step.

    Later steps are ignored: how many a trial takes before it stops depends on the machine's load.
    """
    steps = [record for record in records if "train_loss" in record and record["samples"] <= samples]
    losses = [step["train_loss"] for step in steps]
    return statistics.fmean(losses[-_LAST_LOSSES:]) if losses else None


def is_near(loss: float, reference: float, precision: str) -> bool:
    """Returns True if the loss after some steps is close to the loss of fp32 in the same training."""
    allowed = FP8_LOSS_SHARE if precision == "fp8" else LOSS_SHARE
    return abs(loss / reference - 1) <= allowed  # false for NaN


def epochs_rate(records: Sequence[Record]) -> float | None:
    """Returns samples per second over whole epochs, the first excluded, by the timestamps of `watched`."""
    begun = [(record[_BEGUN], record["samples"]) for record in records if _BEGUN in record][1:]
    if len(begun) < 2:
        return None
    (first_s, before), (last_s, after) = begun[0], begun[-1]
    return float((after - before) / (last_s - first_s))


def is_stamped_well(stamped: float, whole: float) -> bool:
    """Returns True if the speed by the tuner's timestamps agrees with the speed over whole epochs."""
    return abs(stamped / whole - 1) <= STAMPED_SHARE


def evaluations_s(records: Sequence[Record], quality: str) -> list[float]:
    """Returns the seconds of each evaluation, from the end of the preceding step."""
    return [b["at_s"] - a["at_s"] for a, b in itertools.pairwise(records) if quality in b]


def is_without_plans(seconds: Sequence[float]) -> bool:
    """Returns True if the first evaluation prepares no more than kernels, and no plan for every word."""
    return seconds[0] <= _FIRST_EVALUATION * seconds[1]


def waits(records: Sequence[Record]) -> float | None:
    """Returns the mean number of GPU waits per step, as counted by torch; None if nothing was counted."""
    counted = [record["waits"] for record in records if "waits" in record]
    return statistics.fmean(counted) if counted else None
