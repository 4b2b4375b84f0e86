"""A workload that trains nothing, and writes down which GPU it was given for that."""

import json
import os
import time
from pathlib import Path

_TOLD = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "OMP_NUM_THREADS")


def fit(config, workdir):
    """Faster with larger batches. Adds a line to the file PLACED: at its end, but in a race as it begins."""
    told = {name: os.environ.get(name) for name in _TOLD}
    begun_s, samples = time.time(), 0
    if workdir.parent.parent.name != "trials":
        _tell(workdir, config, told, begun_s)
    try:
        while True:
            time.sleep(0.01 + 0.0001 * config["micro_batch_size"])
            samples += config["micro_batch_size"]
            yield {"samples": samples, "train_loss": 1.0}
            if samples % 200 < config["micro_batch_size"]:
                yield {"samples": samples, "bleu_4": 0.2}
    finally:
        if workdir.parent.parent.name == "trials":
            _tell(workdir, config, told, begun_s)


def _tell(workdir, config, told, begun_s):
    line = {
        **told,
        "server": os.getppid(),
        "workers": config["num_workers"],
        "at_s": [begun_s, time.time()],
    }
    with Path(os.environ["PLACED"]).open("a", encoding="utf-8") as placed:
        placed.write(json.dumps({"directory": str(workdir.parent), **line}) + "\n")
