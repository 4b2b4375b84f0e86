"""A workload that writes its checkpoint to a slow disk."""

import os
from pathlib import Path


def fit(config, workdir):
    for step in range(1, 20):
        yield {"samples": step, "train_loss": 1.0}
    yield {"samples": 20, "bleu_4": 0.1}
    Path(workdir, "waiting").touch()
    with Path(config["disk"], "last.pt").open("wb") as file:
        file.write(bytes(2**20))
        os.fsync(file.fileno())
    yield {"samples": 21, "bleu_4": 0.1}
