"""Splitting a window's micro-batches does not change the work."""

import pytest
import torch

from r2gen.data import Batch, padded
from r2gen.step import _parts

REPORTS = [[0, 5, 6, 7, 8, 0], [0, 5, 0], [0, 9, 6, 0], [0, 7, 0], [0, 5, 8, 6, 6, 5]]


def _batch(reports: list[list[int]]) -> Batch:
    count = len(reports)
    return Batch(torch.arange(count)[:, None], padded(reports), torch.arange(count), ("a fault",))


@pytest.mark.parametrize(("size", "counts"), [(8, [5]), (5, [5]), (3, [3, 2]), (2, [2, 2, 1]), (1, [1] * 5)])
def test_a_batch_is_cut_into_parts_with_the_padding_that_they_need(size: int, counts: list[int]) -> None:
    """The last report is too long, and was truncated before its end."""
    parts = list(_parts([_batch(REPORTS)], size))

    assert [len(part.studies) for part in parts] == counts
    assert torch.cat([part.studies for part in parts]).tolist() == [0, 1, 2, 3, 4]
    assert torch.cat([part.images for part in parts]).flatten().tolist() == [0, 1, 2, 3, 4]
    at = 0
    for part in parts:
        own = REPORTS[at : at + len(part.studies)]
        assert torch.equal(part.targets, padded(own))
        at += len(own)


def test_a_batch_that_fits_is_the_same_batch() -> None:
    batches = [_batch(REPORTS), _batch(REPORTS[:2])]
    parts = list(_parts(batches, 3))
    assert parts[-1] is batches[1]
    assert [len(part.studies) for part in parts] == [3, 2, 2]
