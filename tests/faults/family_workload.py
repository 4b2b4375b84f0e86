"""A workload with two other processes: a loader worker that it needs, and a program that leaves its group.

It trains nothing, and writes a checkpoint after every evaluation.
"""

import json
import multiprocessing
import subprocess
import time


def fit(config, workdir):
    """Yields records like R2Gen's, with an evaluation after every 50 samples."""
    state = workdir / "state.json"
    samples = json.loads(state.read_text()) if state.exists() else 0
    batch = config["micro_batch_size"]
    loader = multiprocessing.Process(target=time.sleep, args=(3600,), daemon=True)
    loader.start()
    subprocess.run(["sh", "-c", "setsid sleep 3600 &"], check=True)
    try:
        while True:
            time.sleep(config["step_s"])
            if not loader.is_alive():  # in torch's words, without its seconds
                raise RuntimeError(f"DataLoader worker (pid {loader.pid}) is killed by signal: Killed. ")
            samples += batch
            yield {"samples": samples, "train_loss": 1.0, "learning_rate": config["learning_rate"]}
            if samples // 48 != (samples - batch) // 48:
                yield {"samples": samples, "bleu_4": 0.2}
                whole = state.with_suffix(".tmp")
                whole.write_text(json.dumps(samples))
                whole.replace(state)
    finally:
        loader.kill()
