"""A workload that trains nothing, in no time, and fails on request."""

import json
import os
import signal
import time


def fit(config, workdir):
    """Yields as R2Gen would; `fault` says what goes wrong, `micro_batch_size` above 32 does not fit."""
    workdir.mkdir(parents=True, exist_ok=True)
    state = workdir / "state.json"
    samples = json.loads(state.read_text()) if state.exists() else 0
    batch = config["micro_batch_size"]
    if batch > 32:
        raise MemoryError("toy: the batch does not fit")
    if config.get("fault") == "error":
        raise ValueError("toy: made up")
    if config.get("fault") == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if config.get("fault") == "fill":
        (workdir / "ballast").write_bytes(bytes(2**24))
    if config.get("fault") == "silence":
        time.sleep(3600)
    try:
        while True:
            time.sleep(config.get("step_s", 0.002) + 0.0001 * batch)
            samples += batch
            yield {"samples": samples, "train_loss": 1.0, "learning_rate": config.get("learning_rate", 1e-3)}
            if samples // 200 != (samples - batch) // 200:
                state.write_text(json.dumps(samples))
                beside = {name: config[name] for name in ("val_loss", "bleu_4_chance") if name in config}
                yield {"samples": samples, "bleu_4": 0.2, **beside}
    finally:
        state.write_text(json.dumps(samples))
