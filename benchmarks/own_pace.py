"""A common training script without knowledge of the tuner, which records when each step ended in a ledger.

    python benchmarks/own_pace.py LEDGER [--batch 64]

It trains until it is stopped, on two threads. While the ledger's last entry is set, the tuner's hook is
removed from torch.
"""

import argparse
import importlib
import time
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, dataloader

NAME = "the script"
MOST_STEPS = 1_000_000
SWITCH = MOST_STEPS  # the entry of the ledger after the last step's
EVERY = 500  # steps between two evaluations


class Hook:
    """The tuner's hook in torch, which can be removed and restored."""

    def __init__(self) -> None:
        iterator = dataloader._BaseDataLoaderIter
        places = ((torch.autograd, "backward"), (iterator, "_next_index"), (iterator, "__next__"))
        self._wrapped: list[tuple[Any, str, Any]] = [
            (owner, name, getattr(owner, name)) for owner, name in places
        ]
        self._after_step = importlib.import_module("torch.optim.optimizer")._global_optimizer_post_hooks
        self._told = dict(self._after_step)
        self.is_in = True

    def switch(self) -> None:
        self.is_in = not self.is_in
        for owner, name, wrapper in self._wrapped:
            setattr(owner, name, wrapper if self.is_in else wrapper.__wrapped__)
        self._after_step.clear()
        self._after_step.update(self._told if self.is_in else {})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ledger")
    parser.add_argument("--batch", type=int, default=64)
    given = parser.parse_args()
    ledger = np.memmap(given.ledger, dtype=np.float64, mode="w+", shape=(MOST_STEPS + 1,))
    torch.set_num_threads(2)
    net = nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(2048, 10)),
    )
    optimizer = torch.optim.Adam(net.parameters())
    data = TensorDataset(torch.randn(4096, 3, 32, 32), torch.randint(10, (4096,)))
    step, hook = 0, Hook()
    while True:
        for images, labels in DataLoader(data, given.batch, shuffle=True, drop_last=True):
            loss = nn.functional.cross_entropy(net(images), labels)
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
            ledger[step] = time.monotonic()
            step += 1
            if hook.is_in == bool(ledger[SWITCH]):
                hook.switch()
            if step % EVERY == 0:
                print(f"step {step} val_loss: {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
