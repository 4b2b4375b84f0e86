"""A toy for bench_oom: training on an 8 GiB GPU with a different memory limit for every group of settings.

A sample takes 66 MiB in fp32, half of that in bf16, and a quarter of either with checkpointing: the limits
are 98, 196, 393 and 786 samples. Throughput saturates with the batch; quality falls with the batch and with
the distance from a learning rate of 1e-3.
"""

import math
import random
from collections.abc import Mapping
from typing import Any

SPACE: Mapping[str, Any] = {
    "micro_batch_size": [4, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024],
    "precision": ["fp32", "bf16"],
    "activation_checkpointing": [False, True],
    "learning_rate": (1e-5, 1e-1),
}
_MEMORY_MIB, _MODEL_MIB, _SAMPLE_MIB = 8192, 1700, 66
_NOISE = 0.02  # relative, of throughput and quality


def evaluate(config: Mapping[str, Any], rng: random.Random) -> tuple[float, float] | None:
    """Returns throughput in samples/s and quality of `config`; None if it does not fit into memory."""
    batch, is_half = config["micro_batch_size"], config["precision"] == "bf16"
    saves = config["activation_checkpointing"]
    sample_mib = _SAMPLE_MIB * (0.5 if is_half else 1) * (0.25 if saves else 1)
    if _MODEL_MIB + sample_mib * batch > _MEMORY_MIB:
        return None
    throughput = 400 * (1.8 if is_half else 1) * (0.75 if saves else 1) * batch / (batch + 24)
    off = math.log10(config["learning_rate"] / 1e-3)
    quality = 0.4 / (1 + off * off) / (1 + batch / 4000)
    return throughput * rng.gauss(1, _NOISE), quality * rng.gauss(1, _NOISE)
