"""Micro-batches that a trainer halves by itself."""

import pytest

from autotune.training.halving import MicroBatch

SETTINGS = {"micro_batch_size": 16, "accumulation_steps": 2}


@pytest.mark.parametrize(
    ("settings", "sizes", "said"),
    [
        (SETTINGS, [None, 8, 8, None, 8, 4, None, 4], ["8x4 instead of 16x2", "4x8 instead of 8x4"]),
        (SETTINGS, [16, 16], []),
        (SETTINGS, [8, 8, 16, 16, 8, 8], ["8x4 instead of 16x2"]),
        (SETTINGS, [16, 11, 16, 16, 11, 16], []),  # what is left for the last batch of an epoch
        (SETTINGS, [0, 0, -1, -1, "8", "8", float("nan"), float("nan"), True, True], []),
        ({"micro_batch_size": 5}, [3, 3], ["3x2 instead of 5x1"]),
        ({"learning_rate": 1e-3}, [8, 8], []),
    ],
)
def test_a_smaller_micro_batch_is_told_once(settings, sizes, said):
    known = MicroBatch(settings)
    records = [{"samples": 1} if size is None else {"samples": 1, "micro_batch_size": size} for size in sizes]
    told = [text for record in records if (text := known.hear(record))]
    assert told == [
        f"the trainer halved its micro-batch: {one}: the same effective batch; statistics of batch norms are "
        "of smaller batches"
        for one in said
    ]
