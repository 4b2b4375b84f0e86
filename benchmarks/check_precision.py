"""Trains in every precision that this machine supports: no loss may be NaN, or end far from fp32's.

    python benchmarks/check_precision.py [--steps 200] [--batch 16] [--model small|full] [--data DIR]

Prints the mean loss of the last 20 steps, its distance from fp32's (allowed: 2%, fp8 5%), samples/s after the
first tenth of the steps, and the GPU's peak memory; exits 1 if a distance is larger. Draws its data unless
DIR has some.
"""

import argparse
import math
import statistics
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from r2gen import precision, synthetic
from r2gen.config import parse
from r2gen.errors import InputError
from r2gen.train import fit

SMALL = {"visual_extractor": "small", "image_size": 96, "d_model": 128, "d_ff": 256, "num_layers": 2}
ALLOWED = {"torch-default": 0.02, "tf32": 0.02, "bf16": 0.02, "fp16": 0.02, "fp8": 0.05}
LAST = 20


def train(settings: dict[str, Any], steps: int, workdir: Path) -> tuple[list[float], float]:
    """Returns the losses of `steps` steps, and samples/s without the first tenth of them."""
    losses, begun, before = [], 0.0, 0
    records = fit(settings, workdir)
    for step, record in enumerate(islice((r for r in records if "train_loss" in r), steps), start=1):
        losses.append(record["train_loss"])
        if step == steps // 10:
            begun, before = time.perf_counter(), record["samples"]
        last = record["samples"]
    rate = (last - before) / (time.perf_counter() - begun)
    records.close()
    return losses, rate


def usable(settings: dict[str, Any]) -> bool:
    try:
        precision.check(parse(settings), precision.capability())
    except InputError:
        return False
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--model", choices=("small", "full"), default="small")
    parser.add_argument("--data", type=Path)
    options = parser.parse_args()
    right, expected = True, math.nan
    print("| precision | loss | from fp32's | samples/s | GPU MiB |")
    print("| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as place:
        counts = {"train": 192, "val": 1, "test": 1}
        data = options.data or synthetic.make(Path(place, "data"), counts, seed=0, size=128)
        base = {"data": str(data), "micro_batch_size": options.batch, "learning_rate": 3e-4, "num_workers": 0}
        base |= {"epochs": 10**6, "eval_every_samples": 10**9, **(SMALL if options.model == "small" else {})}
        for name in ("fp32", *ALLOWED):
            settings = {**base, "precision": name}
            if not usable(settings):
                continue
            if torch.cuda.is_available():
                torch.cuda.reset_peak_memory_stats()
            losses, rate = train(settings, options.steps, Path(place, name))
            loss = statistics.mean(losses[-LAST:])
            expected = loss if name == "fp32" else expected
            distance = loss / expected - 1
            sound = all(map(math.isfinite, losses)) and abs(distance) <= ALLOWED.get(name, 0.0)
            right &= sound
            memory = f"{torch.cuda.max_memory_allocated() / 2**20:.0f}" if torch.cuda.is_available() else "-"
            verdict = f"{distance:+.2%}{'' if sound else ', too far'}"
            print(f"| {name} | {loss:.4f} | {verdict} | {rate:.1f} | {memory} |", flush=True)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
