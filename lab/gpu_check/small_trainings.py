"""Small workloads for the check, each doing one thing to a GPU, and the published trainer instrumented."""

import importlib
import itertools
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from autotune.workloads import registry

QUALITY = "bleu_4"
_WAITING = "called a synchronizing CUDA operation"  # c10/cuda/CUDAFunctions.cpp
_COUNTED = range(5, 10)  # steps; in the first epoch, which is not timed, as counting slows them down
_STEP_S = 0.05
_MEASURED_S, _FEWEST_TIMES = 0.2, 8  # of each of `measures`; the GPU is waited for every so many times
_LARGEST_PRODUCT, _PRODUCT_S = 8192, 2e-3
_COPIED = 2**25  # numbers of four bytes


def opens(config: Mapping[str, Any], workdir: Path) -> Iterator[dict[str, Any]]:
    """Reports whether its process can use CUDA, and the server that forked it."""
    del workdir
    for samples in range(1, 6):
        torch.ones(4, device=config["device"])
        time.sleep(_STEP_S)
        yield {"samples": samples, "server": os.getppid(), "bad_fork": torch.cuda._is_in_bad_fork()}
    yield {"samples": 5, QUALITY: 1.0}


def measures(config: Mapping[str, Any], workdir: Path) -> Iterator[dict[str, Any]]:
    """Measures the device without a model; yields a record for each figure that the device supports."""
    del workdir
    for samples, (name, measure) in enumerate(MEASURES.items(), 1):
        record: dict[str, Any] = {"samples": samples}
        with suppress(RuntimeError):  # no such kernel, nothing to pin for
            record[name] = measure(config["device"])
        yield record
    yield {"samples": len(MEASURES), QUALITY: 1.0}


def _seconds(work: Callable[[], object]) -> float:
    """Returns the mean seconds of `work`, repeated for a fifth of a second, after a first time."""
    work()
    begun_s, times = _settled_s(), 0
    while times < _FEWEST_TIMES or time.monotonic() - begun_s < _MEASURED_S:
        work()
        times += 1
        if times % _FEWEST_TIMES == 0:
            _settled_s()  # a queue of thousands would outlast the time
    return (_settled_s() - begun_s) / times


def _tflops(dtype: torch.dtype, device: str) -> float:
    """Returns the speed of a square matrix product, of a size that keeps the device busy."""
    size, seconds = 256, 0.0
    while size < _LARGEST_PRODUCT and seconds < _PRODUCT_S:
        size *= 2
        matrix = torch.ones(size, size, device=device).to(dtype)
        seconds = _seconds(partial(torch.matmul, matrix, matrix))
    return 2e-12 * size**3 / seconds


def _copies_gb_per_s(source: torch.Tensor, target: torch.Tensor, times: int = 1) -> float:
    return times * source.nbytes / _seconds(lambda: target.copy_(source, non_blocking=True)) / 1e9


def _memory(device: str) -> float:
    """Returns the speed of reading and writing memory."""
    held = torch.ones(_COPIED, device=device)
    return _copies_gb_per_s(held, torch.empty_like(held), times=2)


def _from_host(device: str, *, is_pinned: bool) -> float:
    held = torch.ones(_COPIED)
    return _copies_gb_per_s(held.pin_memory() if is_pinned else held, torch.empty(_COPIED, device=device))


def _launch_us(device: str) -> float:
    """Returns the time of an operation that computes next to nothing."""
    number = torch.ones(1, device=device)
    return 1e6 * _seconds(lambda: number.add_(1.0))


MEASURES: dict[str, Callable[[str], float]] = {
    "matmul_fp32_tflops": partial(_tflops, torch.float32),
    "matmul_bf16_tflops": partial(_tflops, torch.bfloat16),
    "memory_gb_per_s": _memory,
    "host_pinned_gb_per_s": partial(_from_host, is_pinned=True),
    "host_pageable_gb_per_s": partial(_from_host, is_pinned=False),
    "launch_us": _launch_us,
}


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
