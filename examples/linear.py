"""The smallest workload: linear regression, with a checkpoint and a score."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

SAMPLES_PER_EVALUATION = 2048


def fit(config: Mapping[str, Any], workdir: Path) -> Iterator[Mapping[str, Any]]:
    """Trains until it is closed; yields a record after every step and, with `r2`, after every evaluation."""
    generator = torch.Generator().manual_seed(0)
    truth = torch.randn(64, 1, generator=generator)
    held_out = torch.randn(512, 64, generator=generator)
    model = torch.nn.Linear(64, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=config["learning_rate"])
    samples = 0
    file = workdir / "last.pt"
    if file.exists():
        state = torch.load(file, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        samples = state["samples"]
    try:
        while True:
            inputs = torch.randn(config["micro_batch_size"], 64, generator=generator)
            loss = torch.nn.functional.mse_loss(model(inputs), inputs @ truth)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            before, samples = samples, samples + len(inputs)
            yield {"samples": samples, "train_loss": loss.item()}
            if samples // SAMPLES_PER_EVALUATION > before // SAMPLES_PER_EVALUATION:
                with torch.no_grad():
                    target = held_out @ truth
                    error = torch.nn.functional.mse_loss(model(held_out), target)
                yield {"samples": samples, "r2": 1 - error.item() / target.var().item()}
    finally:
        torch.save(
            {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "samples": samples}, file
        )
