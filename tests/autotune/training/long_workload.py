"""A workload that trains nothing, and meets every fault once that its settings say. Children import it."""

import json
import os
import signal
import time

EVALUATED_EVERY = 200


class OutOfMemoryError(RuntimeError):
    """Told by its name, as torch's own is."""


def out_of_memory(config):
    if config["micro_batch_size"] > config["room"]:
        raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


def killed(config):
    os.kill(os.getpid(), signal.SIGKILL)


def passing(config):
    raise RuntimeError("CUDA error: unspecified launch failure")


def lasting(config):
    raise ValueError("image 7 has no caption")


def hung(config):
    time.sleep(3600)


def _keep(file, samples, met):
    """Whole or not at all: a kill may come in between."""
    new = file.with_suffix(".new")
    new.write_text(json.dumps((samples, met)))
    new.replace(file)


FAULTS = {fault.__name__: fault for fault in (out_of_memory, killed, passing, lasting, hung)}


def fit(config, workdir):
    """A step trains all micro-batches that are accumulated; `faults` are met once, after so many samples."""
    workdir.mkdir(parents=True, exist_ok=True)
    state = workdir / "state.json"
    samples, met = json.loads(state.read_text()) if state.exists() else (0, [])
    batch = config["micro_batch_size"] * config["accumulation_steps"]
    faults = {name: int(at) for name, _, at in (f.partition("@") for f in config["faults"].split())}
    while True:
        time.sleep(0.002)
        for name, at in faults.items():
            if at <= samples and name not in met:
                met = met if config["again"] else [*met, name]
                _keep(state, samples, met)
                FAULTS[name](config)
        samples += batch
        yield {"samples": samples, "train_loss": 1.0, "batch": batch}
        if samples // EVALUATED_EVERY != (samples - batch) // EVALUATED_EVERY:
            yield {"samples": samples, "score": min(1.0, samples / 1000)}
            _keep(state, samples, met)  # a kill before that repeats the evaluation
