"""Whole trainings of nanoGPT's recipe for a CPU without the tuner, to verify its claims.

    python benchmarks/nanogpt_alone.py DIRECTORY TABLE BATCH,RATE,SAMPLES,SEED ...

DIRECTORY is a clone of nanoGPT with prepared character data. The public script trains in its own process,
with its seed replaced and without the tuner. Adds a JSON line for each to TABLE: the seconds of its steps
(median times number) and of the whole run, the final validation loss, and the threads set by OMP_NUM_THREADS,
if any. Two concurrently, on a core each:

    OMP_NUM_THREADS=1 taskset -c 0 python benchmarks/nanogpt_alone.py ...
"""

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MODEL = "--block_size=64 --n_layer=4 --n_head=4 --n_embd=128 --dropout=0.0"
RECIPE = f"config/train_shakespeare_char.py --device=cpu --compile=False {MODEL}"
OWN_SEED = "manual_seed(1337"
WARM_UP = 0.05  # share of the steps, as in the recipe


def flags(settings: Mapping[str, Any]) -> list[str]:
    return [f"--{name}={value}" for name, value in settings.items()]


def command(directory: Path, scratch: str, settings: Mapping[str, Any], seed: int) -> list[str]:
    """Returns the command that trains by the recipe with `settings` and a seed, and writes into `scratch`."""
    script = Path(scratch, "train.py")
    script.write_text((directory / "train.py").read_text().replace(OWN_SEED, f"manual_seed({seed}"))
    run = f"runpy.run_path({str(script)!r}, run_name='__main__')"
    runner = f"import runpy, sys; sys.path.insert(0, '.'); {run}"
    return [sys.executable, "-uc", runner, *RECIPE.split(), *flags(settings), f"--out_dir={scratch}"]


def train(directory: Path, batch: int, rate: float, samples: int, seed: int) -> dict[str, Any]:
    """Returns the results of a training whose schedule ends after `samples`."""
    steps = samples // batch
    with tempfile.TemporaryDirectory() as scratch:
        settings = {
            "eval_iters": 100,
            "batch_size": batch,
            "learning_rate": rate,
            "min_lr": rate / 10,
            "max_iters": steps,
            "lr_decay_iters": steps,
            "warmup_iters": round(WARM_UP * steps),
            "eval_interval": steps,
        }
        begun_s = time.monotonic()
        done = subprocess.run(
            command(directory, scratch, settings, seed),
            cwd=directory,
            capture_output=True,
            text=True,
            check=True,
        )
        whole_s = time.monotonic() - begun_s
    step_ms = [float(found) for found in re.findall(r"iter \d+: loss .* time ([0-9.]+)ms", done.stdout)]
    losses = [float(found) for found in re.findall(r"val loss ([0-9.]+)", done.stdout)]
    return {
        "batch": batch,
        "rate": rate,
        "samples": samples,
        "seed": seed,
        "steps_s": round(statistics.median(step_ms) * steps / 1000, 2),
        "whole_s": round(whole_s, 1),
        "val_loss": losses[-1],
        "threads": int(os.environ.get("OMP_NUM_THREADS") or 0) or None,
    }


def main() -> None:
    directory, table = map(Path, sys.argv[1:3])
    for wanted in sys.argv[3:]:
        batch, rate, samples, seed = wanted.split(",")
        line = json.dumps(train(directory, int(batch), float(rate), int(samples), int(seed)))
        with table.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        print(line, flush=True)


if __name__ == "__main__":
    main()
