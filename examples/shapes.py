"""A workload with a held-out score: a small convolutional network that tells drawn shapes apart."""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

TRAIN, VAL, SIDE = 4000, 500, 24
_DATA_SEED, _LARGE, _NOISE = 7, 4, 0.15  # drawn four times as large, so that scaling down smooths the edges
_FULL, _HALF, _TURN = 360, 180, 40
# Ten classes: the corners or the arc in degrees of what is drawn, and whether it is filled.
_SHAPES = [(corners, filled) for corners in (3, 4, 6) for filled in (False, True)]
_ARCS = [(degrees, filled) for degrees in (_HALF, _FULL) for filled in (False, True)]
CLASSES = len(_SHAPES) + len(_ARCS)


def fit(config: Mapping[str, Any], workdir: Path) -> Iterator[Mapping[str, Any]]:
    """Trains for `epochs`; yields a record after every step and, with `accuracy`, after every evaluation."""
    (images, labels), held_out = data()
    torch.manual_seed(config["seed"])
    layout = torch.channels_last if config["channels_last"] else torch.contiguous_format
    model = network().to(memory_format=layout)
    optimizer = torch.optim.Adam(model.parameters(), lr=config["learning_rate"])
    file = workdir / "last.pt"
    samples = _restore(file, model, optimizer)
    try:
        while samples < config["epochs"] * TRAIN:
            batch = _next_batch(config, samples)
            loss_sum = 0.0
            optimizer.zero_grad()
            for part in batch.split(config["micro_batch_size"]):
                loss = cross_entropy(
                    model(images[part].to(memory_format=layout)), labels[part], reduction="sum"
                )
                (loss / len(batch)).backward()
                loss_sum += loss.item()
            optimizer.step()
            before, samples = samples, samples + len(batch)
            yield {"samples": samples, "train_loss": loss_sum / len(batch)}
            if samples // config["eval_every_samples"] > before // config["eval_every_samples"]:
                yield {"samples": samples, **evaluate(model, *held_out)}
    finally:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "samples": samples}
        torch.save(state, file)


def network() -> nn.Module:
    """One number a class from images of (batch, 1, 24, 24)."""
    layers: list[nn.Module] = []
    for before, after in ((1, 8), (8, 16), (16, 32)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(32 * (SIDE // 8) ** 2, CLASSES))


@torch.no_grad()
def evaluate(model: nn.Module, images: Tensor, labels: Tensor) -> dict[str, Any]:
    """The share of images that is told right, what the commonest answer alone would reach, and the loss."""
    scores = model(images)
    answers = scores.argmax(1)
    right = (answers == labels).double()
    return {
        "accuracy": right.mean().item(),
        "accuracy_chance": labels.bincount().max().item() / len(labels),
        "accuracy_items": right.tolist(),
        "val_loss": cross_entropy(scores, labels).item(),
        "collapsed": len(answers.unique()) == 1,
    }


@cache
def data() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Images of (count, 1, 24, 24) and their classes to learn from, and others to be scored with."""
    rng = np.random.default_rng(_DATA_SEED)
    labels = rng.integers(CLASSES, size=TRAIN + VAL)
    drawn = np.stack([draw(int(label), rng) for label in labels])
    noisy = drawn + rng.normal(0, _NOISE, drawn.shape)
    images, classes = torch.tensor(noisy, dtype=torch.float32)[:, None], torch.tensor(labels)
    return (images[:TRAIN], classes[:TRAIN]), (images[TRAIN:], classes[TRAIN:])


def draw(label: int, rng: np.random.Generator) -> np.ndarray:
    """A shape of the class `label`, of any size, place and angle: brightness from 0 to 1, (24, 24)."""
    side = SIDE * _LARGE
    canvas = Image.new("L", (side, side))
    pen, radius = ImageDraw.Draw(canvas), rng.uniform(0.28, 0.42) * side
    x, y = rng.uniform(radius, side - radius, 2)
    angle = rng.uniform(-_TURN, _TURN)
    if label < len(_SHAPES):
        corners, filled = _SHAPES[label]
        pen.regular_polygon((x, y, radius), corners, angle, fill=255 * filled, outline=255, width=6)
    else:
        degrees, filled = _ARCS[label - len(_SHAPES)]
        box = (x - radius, y - radius, x + radius, y + radius)
        pen.chord(box, angle, angle + degrees, fill=255 * filled, outline=255, width=6)
    return np.asarray(canvas.resize((SIDE, SIDE), Image.Resampling.BOX)) / 255


def _next_batch(config: Mapping[str, Any], samples: int) -> Tensor:
    """Which images the next step learns from: each epoch has an order of its own, whoever goes on with it."""
    epoch, place = divmod(samples, TRAIN)
    order = torch.randperm(TRAIN, generator=torch.Generator().manual_seed(config["seed"] * 1000 + epoch))
    return order[place : place + config["micro_batch_size"] * config["accumulation_steps"]]


def _restore(file: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """The samples that a checkpoint was written after, which the training goes on with; 0 without one."""
    if not file.exists():
        return 0
    state = torch.load(file, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["samples"])
