"""Whole trainings of `make search`'s demonstration without the tuner, to verify its claims.

    python benchmarks/r2gen_alone.py TABLE BATCH,RATE,EPOCHS,SEED ...

Each is `python -m r2gen train` in its own process, with the baseline of `search_spaces/cpu.yaml` and the
given settings, without the tuner. Adds a JSON line for each to TABLE: the seconds of its steps (median times
number) and of the whole run, the final scores and loss, and the threads set by OMP_NUM_THREADS, if any. Two
concurrently, on a core each:

    OMP_NUM_THREADS=1 taskset -c 0 python benchmarks/r2gen_alone.py ...
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

from r2gen import config, synthetic
from r2gen.cache import directory

SPACE = Path(__file__).parents[1] / "search_spaces" / "cpu.yaml"
STUDIES = {"train": 256, "val": 64, "test": 64}  # as the demonstration draws them
PHASES = ("data_s", "transfer_s", "forward_s", "backward_s", "optimizer_s")
SCORES = ("bleu_4", "val_loss")


def train(batch: int, rate: float, epochs: int, seed: int) -> dict[str, Any]:
    """Returns the results of a training of so many epochs."""
    baseline = yaml.safe_load(SPACE.read_text())["baseline"]
    samples = epochs * STUDIES["train"]
    with tempfile.TemporaryDirectory() as scratch:
        settings = {
            **baseline,
            "data": str(synthetic.make(directory().parent, STUDIES, seed=0, size=128)),
            "micro_batch_size": batch,
            "learning_rate": rate,
            "epochs": epochs,
            "seed": seed,
            "eval_every_samples": samples,
            "meteor": False,
        }
        file, records = Path(scratch, "config.yaml"), Path(scratch, "records.jsonl")
        file.write_text(config.dump(config.parse(settings)))
        begun_s = time.monotonic()
        options: list[str | Path] = [
            "--config",
            file,
            "--workdir",
            Path(scratch, "work"),
            "--records",
            records,
        ]
        subprocess.run([sys.executable, "-m", "r2gen", "train", *options], capture_output=True, check=True)
        whole_s = time.monotonic() - begun_s
        records_read = [json.loads(line) for line in records.read_text().splitlines()]
    steps = [sum(record[phase] for phase in PHASES) for record in records_read if "train_loss" in record]
    return {
        "batch": batch,
        "rate": rate,
        "samples": samples,
        "seed": seed,
        "steps_s": round(statistics.median(steps) * len(steps), 2),
        "whole_s": round(whole_s, 1),
        **{name: round(records_read[-1][name], 4) for name in SCORES},
        "threads": int(os.environ.get("OMP_NUM_THREADS") or 0) or None,
    }


def main() -> None:
    table = Path(sys.argv[1])
    for wanted in sys.argv[2:]:
        batch, rate, epochs, seed = wanted.split(",")
        line = json.dumps(train(int(batch), float(rate), int(epochs), int(seed)))
        with table.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        print(line, flush=True)


if __name__ == "__main__":
    main()
