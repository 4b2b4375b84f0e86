"""The regression of `linear.py` in a loop of its own, which reports instead of yielding."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

import autotune

EVALUATION_EVERY = 2048  # samples


def train(config: Mapping[str, Any], workdir: Path) -> None:
    """Trains on 100,000 samples, or until it is to stop."""
    generator = torch.Generator().manual_seed(0)
    truth = torch.randn(64, 1, generator=generator)
    held_out = torch.randn(512, 64, generator=generator)
    model, samples = torch.nn.Linear(64, 1), 0
    optimizer = torch.optim.Adam(model.parameters(), lr=config["learning_rate"])
    file = workdir / "last.pt"
    if file.exists():
        samples, *states = torch.load(file, weights_only=True)
        for one, state in zip((model, optimizer), states, strict=True):
            one.load_state_dict(state)
    while samples < 100_000 and not autotune.should_stop():
        inputs = torch.randn(config["micro_batch_size"], 64, generator=generator)
        loss = torch.nn.functional.mse_loss(model(inputs), inputs @ truth)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        samples += len(inputs)
        autotune.report(samples=samples, train_loss=loss.item())
        if samples % EVALUATION_EVERY < len(inputs):
            with torch.no_grad():
                val_loss = torch.nn.functional.mse_loss(model(held_out), held_out @ truth)
            autotune.report(samples=samples, val_loss=val_loss)
    torch.save([samples, model.state_dict(), optimizer.state_dict()], file)
