"""Workloads that train nothing. The first record marks the time of the workload's first line."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


def fit(config: Mapping[str, Any], workdir: Path) -> Iterator[Mapping[str, Any]]:
    """Yields 640 samples in a second, and a score."""
    del workdir
    yield {"samples": 0}
    steps = 640 // config["micro_batch_size"]
    for step in range(1, steps + 1):
        time.sleep(1 / steps)
        yield {"samples": step * config["micro_batch_size"], "train_loss": 1.0}
    yield {"samples": 640, "score": 1.0}


def fit_or_fail(config: Mapping[str, Any], workdir: Path) -> Iterator[Mapping[str, Any]]:
    """As `fit`, but every other learning rate fails, by a rule that no sampler can learn."""
    for record in fit(config, workdir):
        if "score" in record and round(config["learning_rate"] * 1e9) % 2:
            raise RuntimeError("made up")
        yield record


def at_once(config: Mapping[str, Any], workdir: Path) -> Iterator[Mapping[str, Any]]:
    """Yields 24 steps without delay, slower for larger widths, and a score that varies."""
    del workdir
    batch, width = config["micro_batch_size"], config["width"]
    for step in range(1, 25):
        time.sleep(1e-5 * batch * width)
        yield {"samples": step * batch, "train_loss": 1.0}
    yield {"samples": max(192, 24 * batch), "score": 1.0 + config["learning_rate"]}
