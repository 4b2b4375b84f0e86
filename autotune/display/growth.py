"""Memory that grows, in words: how fast, and when it is full. Pure."""

import math
from typing import NamedTuple

from autotune.core import units
from autotune.core.measurement import Slope
from autotune.judging.measurement.trends import Full


class Memory(NamedTuple):
    """A memory by its figures in the telemetry: what is `held`, and what that leaves `free`."""

    name: str
    held: str
    free: str


MEMORIES = (
    Memory("the host's memory", "host_rss_bytes", "host_memory_free_bytes"),
    Memory("the GPU's memory", "gpu_memory_used_bytes", "gpu_memory_free_bytes"),
)


def more(found: Slope, unit: str) -> str:
    """`62 MiB more for every 1000 samples (56 MiB to 69 MiB)`."""
    rate, low, high = (units.format_bytes(1000 * r) for r in (found.per_sample, found.low, found.high))
    return f"{rate} more for every 1000 {unit} ({low} to {high})"


def until(found: Full, unit: str, epoch: int | None) -> str:
    """`491920 samples, in epoch 41`; no epoch where its number of samples is unknown."""
    during = f", in epoch {math.ceil(found.samples / epoch)}" if epoch else ""
    return f"{found.samples:.0f} {unit}{during}"
