"""A training that reports from its own loop: it runs without the tuner as well, by `python push.py`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

import autotune

SAMPLES_PER_EVALUATION = 2048


def drawn(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs, and what is a line of them with noise of variance 1."""
    truth = torch.randn(64, 1, generator=torch.Generator().manual_seed(0))
    inputs = torch.randn(count, 64)
    return inputs, inputs @ truth + torch.randn(count, 1)


def fit(settings: Mapping[str, Any], workdir: Path) -> None:
    """Trains from the checkpoint in `workdir`, and tells of every step and evaluation."""
    torch.manual_seed(settings["seed"])
    held_out, wanted = drawn(4096)
    model = torch.nn.Linear(64, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=settings["learning_rate"])
    file = workdir / "last.pt"
    saved = torch.load(file, weights_only=True) if file.exists() else None
    if saved:
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
    samples = saved["samples"] if saved else 0
    while samples < settings["samples"] and not autotune.should_stop():
        inputs, outputs = drawn(settings["micro_batch_size"])
        loss = torch.nn.functional.mse_loss(model(inputs), outputs)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        samples += len(inputs)
        autotune.report(samples=samples, train_loss=loss.item())
        if samples % SAMPLES_PER_EVALUATION == 0:
            with torch.no_grad():
                error = torch.nn.functional.mse_loss(model(held_out), wanted).item()
            saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "samples": samples}
            torch.save(saved, file)
            autotune.report(samples=samples, error=error)
            print(f"after {samples} samples the error is {error:.3f}")


if __name__ == "__main__":
    fit({"micro_batch_size": 8, "learning_rate": 3e-3, "seed": 0, "samples": 40960}, Path())
