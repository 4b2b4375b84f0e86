"""What the benchmarks compare with computes the same: else their ratios would mean nothing."""

import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
TINY = {
    "visual_extractor": "small",
    "image_size": 64,
    "d_model": 32,
    "d_ff": 48,
    "num_heads": 4,
    "num_layers": 2,
    "rm_num_heads": 2,
    "dropout": 0.0,
    "drop_prob_lm": 0.0,
}


@pytest.fixture
def plain(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    import plain

    yield plain
    sys.modules.pop("plain")


@pytest.mark.slow
def test_the_plain_training_step_has_our_loss_and_our_gradients(plain):
    # Here: every worker of a test run collects this file, and torch's compiler takes a second to import.
    import torch

    from r2gen.config import Config
    from r2gen.model import R2Gen, loss_sum
    from r2gen.packing import Packing
    from tests.tiny_r2gen import attend_without_dropout

    torch.manual_seed(0)
    model = R2Gen(Config(data="none", **TINY), 20).double()
    attend_without_dropout(model)
    images, targets = torch.randn(3, 2, 3, 64, 64).double(), torch.randint(1, 20, (3, 9))
    targets[:, 0] = 0
    targets[0, 5:] = targets[1, 2:] = 0
    expected = plain.loss(model, images, targets)
    packing = Packing.from_lengths([5, 2, 8], images.device)
    found = loss_sum(model(images, targets, packing), targets) / (5 + 2 + 8)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
    parameters = list(model.parameters())
    ours, theirs = (torch.autograd.grad(loss, parameters) for loss in (found, expected))
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-8, atol=1e-12)
