"""The samples of an epoch, counted in an epoch of the user's own training."""

import sys

import pytest

from autotune.core.errors import InputError
from autotune.sessions import prepare, start
from autotune.sessions.requests import SearchRequest

pytestmark = pytest.mark.usefixtures("_without_compiler")
SCRIPT = """
import sys
import torch
from torch.utils.data import DataLoader, TensorDataset

data, model = TensorDataset(torch.randn(100, 4)), torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(int(sys.argv[1])):
    for (x,) in DataLoader(data, batch_size=10):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    print("epoch", epoch, "warm-up", sys.argv[2], "val_loss 0.5")
"""
SPACE = """
workload:
  kind: command
  run: {python} train.py {{epochs}} {{warm_up}} {{batch}}
  quality: {{val_loss: 'val_loss ([0-9.]+)'}}
roles: {{micro_batch_size: batch}}
baseline: {{batch: 10, epochs: 6, warm_up: 3}}
knobs: {{batch: {{choice: [10, 20]}}, length: {{epochs: [epochs, warm_up]}}}}
objective: {{minimize: val_loss}}
"""


@pytest.fixture
def prepared(tmp_path, monkeypatch):
    def prepare_with(script):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "train.py").write_text(script)
        file = tmp_path / "space.yaml"
        file.write_text(SPACE.format(python=sys.executable))
        here = start.hardware(None, 0)
        return start.prepared(SearchRequest(space=str(file)), prepare.read_space(file, {}), file, here)

    return prepare_with


@pytest.mark.slow
def test_an_epoch_of_the_baseline_is_trained_to_count_its_samples(prepared, capfd, tmp_path):
    space, _, _ = prepared(SCRIPT)
    assert (space.training.samples_per_epoch, space.budget.samples_per_trial) == (100, 600)
    assert (space.baseline["epochs"], space.baseline["warm_up"]) == (6, 3)
    assert "An epoch has 100 samples." in capfd.readouterr().err
    assert not list(tmp_path.glob(".epoch-*"))


def test_an_epoch_that_fails_has_its_reason(prepared):
    with pytest.raises(InputError, match=r"samples_per_epoch: an epoch of the baseline .*boom"):
        prepared("raise SystemExit('boom')")
