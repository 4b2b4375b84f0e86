"""A training script as many are, which knows nothing of the tuner and keeps a ledger: when each step ended.

    python benchmarks/own_pace.py LEDGER [--batch 64]

It trains until it is ended, on two threads.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

MOST_STEPS = 1_000_000
EVERY = 500  # steps between two evaluations


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ledger")
    parser.add_argument("--batch", type=int, default=64)
    given = parser.parse_args()
    ledger = np.memmap(given.ledger, dtype=np.float64, mode="w+", shape=(MOST_STEPS,))
    torch.set_num_threads(2)
    net = nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(2048, 10)),
    )
    optimizer = torch.optim.Adam(net.parameters())
    data = TensorDataset(torch.randn(4096, 3, 32, 32), torch.randint(10, (4096,)))
    step = 0
    while True:
        for images, labels in DataLoader(data, given.batch, shuffle=True, drop_last=True):
            loss = nn.functional.cross_entropy(net(images), labels)
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
            ledger[step] = time.monotonic()
            step += 1
            if step % EVERY == 0:
                print(f"step {step} val_loss: {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
