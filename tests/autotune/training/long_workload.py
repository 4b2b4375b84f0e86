"""A workload that trains nothing, and meets each configured fault once. Child processes import it."""

import json
import multiprocessing
import os
import signal
import tempfile
import time

EVALUATED_EVERY = 200


class OutOfMemoryError(RuntimeError):
    """An error that is recognised by its name, like torch's own."""


def out_of_memory(config, workdir):
    if config["micro_batch_size"] > config["room"]:
        raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


def killed(config, workdir):
    os.kill(os.getpid(), signal.SIGKILL)


def passing(config, workdir):
    raise RuntimeError("CUDA error: unspecified launch failure")


def lasting(config, workdir):
    raise ValueError("image 7 has no caption")


def hung(config, workdir):
    """Waits for a child process that delivers nothing, like a loader's worker that hangs."""
    worker = multiprocessing.get_context("fork").Process(target=time.sleep, args=(3600,))
    worker.start()
    (workdir / "worker").write_text(str(worker.pid))
    worker.join()


def _keep(file, samples, met):
    """Writes the file atomically, because a kill may come at any time."""
    new = file.with_suffix(".new")
    new.write_text(json.dumps((samples, met)))
    new.replace(file)


FAULTS = {fault.__name__: fault for fault in (out_of_memory, killed, passing, lasting, hung)}


def fit(config, workdir):
    """Trains all accumulated micro-batches in each step; every step leaks the number of bytes in `leaks`.

    Each of the `faults` occurs once, after so many samples.
    """
    workdir.mkdir(parents=True, exist_ok=True)
    tempfile.mkdtemp()  # never removed: that is left to the tuner
    state = workdir / "state.json"
    samples, met = json.loads(state.read_text()) if state.exists() else (0, [])
    batch = config["micro_batch_size"] * config["accumulation_steps"]
    left = []
    while True:
        time.sleep(0.002)
        left.append(b"x" * config["leaks"])
        for fault in config["faults"].split():
            name, _, at = fault.partition("@")
            if int(at) <= samples and fault not in met:
                met = met if config["again"] else [*met, fault]
                _keep(state, samples, met)
                FAULTS[name](config, workdir)
        samples += batch
        yield {"samples": samples, "train_loss": 1.0, "batch": batch}
        if samples // EVALUATED_EVERY != (samples - batch) // EVALUATED_EVERY:
            yield {"samples": samples, "score": min(1.0, samples / 1000)}
            _keep(state, samples, met)  # a kill before this line repeats the evaluation
