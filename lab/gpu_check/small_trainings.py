"""Small workloads for the check, each doing one thing to a GPU, and the published trainer instrumented."""

import importlib
import itertools
import os
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from autotune.workloads import registry

QUALITY = "bleu_4"
_WAITING = "called a synchronizing CUDA operation"  # c10/cuda/CUDAFunctions.cpp
_COUNTED = range(5, 10)  # steps; in the first epoch, which is not timed, as counting slows them down
_STEP_S = 0.05


def opens(config: Mapping[str, Any], workdir: Path) -> Iterator[dict[str, Any]]:
    """Reports whether its process can use CUDA, and the server that forked it."""
    del workdir
    for samples in range(1, 6):
        torch.ones(4, device=config["device"])
        time.sleep(_STEP_S)
        yield {"samples": samples, "server": os.getppid(), "bad_fork": torch.cuda._is_in_bad_fork()}
    yield {"samples": 5, QUALITY: 1.0}


def grows(config: Mapping[str, Any], workdir: Path) -> Iterator[dict[str, Any]]:
    """Allocates `step_bytes` more with every step until memory runs out."""
    del workdir
    held = []
    for samples in itertools.count(1):
        held.append(torch.ones(config["step_bytes"], dtype=torch.uint8, device=config["device"]))
        yield {"samples": samples, "held_bytes": samples * config["step_bytes"]}


def holds(config: Mapping[str, Any], workdir: Path) -> Iterator[dict[str, Any]]:
    """Holds `step_bytes`, loads batches with workers, and never ends; its records have the pid to kill."""
    del workdir
    held = torch.ones(config["step_bytes"], dtype=torch.uint8, device=config["device"])
    data = TensorDataset(torch.arange(1000))
    loader: DataLoader[Any] = DataLoader(data, num_workers=2, persistent_workers=True)
    for samples, batch in enumerate(itertools.chain.from_iterable(itertools.repeat(loader)), 1):
        time.sleep(_STEP_S)
        yield {"samples": samples, "train_loss": float(held[0]) + len(batch), "pid": os.getpid()}


def watched(config: Mapping[str, Any], workdir: Path) -> Iterator[dict[str, Any]]:
    """Yields the built-in trainer's records, with the times at which the GPU became idle before an epoch.

    For some steps it adds how often they waited for the GPU.
    """
    module, _, name = registry.named(registry.BUILTIN).entry_point.partition(":")
    records = getattr(importlib.import_module(module), name)(config, workdir)
    epoch = 0
    for number in itertools.count(1):
        record = _with_waits(records) if number in _COUNTED else next(records, None)
        if record is None:
            return
        if record["epoch"] != epoch and "train_loss" in record:
            epoch = record["epoch"]
            record = {**record, "epoch_begun_s": _settled_s()}
        yield record


def _settled_s() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.monotonic()


def _with_waits(records: Iterator[dict[str, Any]]) -> dict[str, Any] | None:
    """Returns the next record with the number of synchronisation warnings before it."""
    if not torch.cuda.is_available():
        return next(records, None)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            record = next(records, None)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    count = sum(_WAITING in str(one.message) for one in seen)
    return record and {**record, "waits": count}
