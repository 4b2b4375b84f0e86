import pytest
import torch

from r2gen.packing import Packing

CPU = torch.device("cpu")


@pytest.mark.parametrize("lengths", [[3, 1, 4], [2, 2], [1], [5, 5, 1, 2]])
def test_what_is_packed_and_unpacked_is_the_grid_with_0_behind_each_report(lengths):
    grid = torch.randn(len(lengths), max(lengths), 2)
    packing = Packing.from_lengths(lengths, CPU)
    packed = packing.pack(grid)
    assert packed.shape == (sum(lengths), 2)
    kept = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    assert torch.equal(packing.unpack(packed), grid * kept[:, :, None])


def test_steps_come_one_after_the_other_with_the_longest_report_first():
    packing = Packing.from_lengths([1, 3, 2], CPU)
    assert packing.running.tolist() == [3, 2, 1]
    assert packing.positions.tolist() == [3, 6, 0, 4, 7, 5]  # report 1, 2, 0 at step 0; 1, 2; 1


def test_the_whole_grid_is_packed_step_by_step():
    grid = torch.randn(2, 3)
    packing = Packing.full(grid)
    assert packing.running.tolist() == [2, 2, 2]
    assert torch.equal(packing.pack(grid), grid.t().flatten())
