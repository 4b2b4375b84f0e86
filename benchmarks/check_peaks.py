"""Checks `predict`'s memory peaks of micro-batches larger than any seen, over the recorded tables.

The model is fitted to every timed run up to a micro-batch, from the second on, and predicts the larger ones.
"""

import statistics
from collections.abc import Iterator
from pathlib import Path

from autotune.core.measurement import Measurement
from autotune.core.settings import MICRO_BATCH
from autotune.core.trial import Status, Trial
from autotune.memory.feasibility import MemoryModel
from autotune.space import configurations
from lab.replay.table import Table

TABLES = Path(__file__).parent / "tables"


def trials(table: Table) -> list[Trial]:
    runs = [run for config in configurations.allowed(table.space) or [] for run in table.timed(config)]
    return [
        Trial(number, run.config, run.outcome, Measurement(peak_memory_bytes=run.peak_memory_bytes))
        for number, run in enumerate(runs)
        if run.peak_memory_bytes and run.outcome.status is Status.COMPLETED
    ]


def lines(name: str) -> Iterator[str]:
    table = Table.read(TABLES / f"{name}.jsonl")
    known = trials(table)
    sizes = sorted({int(t.config[MICRO_BATCH] or 0) for t in known})
    for largest in sizes[1:-1]:
        model = MemoryModel([t for t in known if t.config[MICRO_BATCH] in range(largest + 1)])
        for size in (s for s in sizes if s > largest):
            yield f"{name}: seen up to {largest}, predicted {size}: {_held_out(model, known, size)}"


def _held_out(model: MemoryModel, known: list[Trial], size: int) -> str:
    pairs = [
        (peak, predicted)
        for t in known
        if t.config[MICRO_BATCH] == size
        if (peak := t.measurement.peak_memory_bytes) and (predicted := model.predict(t.config))
    ]
    inside = sum(predicted.low_bytes <= peak <= predicted.high_bytes for peak, predicted in pairs)
    off = statistics.median(abs(predicted.expected_bytes / peak - 1) for peak, predicted in pairs)
    half = statistics.median(
        (predicted.high_bytes - predicted.expected_bytes) / predicted.expected_bytes for _, predicted in pairs
    )
    return f"{inside} of {len(pairs)} within the interval, off by {off:.0%}, half of it {half:.0%}"


if __name__ == "__main__":
    for name in ("drawn", "iu-xray", "shapes"):
        print(*lines(name), sep="\n")
