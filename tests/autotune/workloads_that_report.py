"""Workloads that train in a loop of their own. Real children import this module by its name."""

import multiprocessing
import os
import subprocess
import sys
import threading
import time

import autotune
from autotune.inside.messages import Stamped


def steps(config, workdir):
    for step in range(3):
        autotune.report(samples=4 * (step + 1), train_loss=1.0)
    autotune.report(samples=12, bleu_4=0.5)


def says_where_it_is(config, workdir):
    assert autotune.workdir() == workdir
    autotune.report(samples=1, settings=autotune.settings())


def scalars(config, workdir):
    import numpy as np
    import torch

    autotune.report(samples=np.int64(4), train_loss=torch.tensor(0.5), scores={"bleu_4": np.float32(0.25)})


def until_stopped(config, workdir):
    samples = 0
    while not autotune.should_stop():
        samples += 1
        autotune.report(samples=samples)
        time.sleep(0.01)
    (workdir / "checkpoint").write_text(str(samples))


def goes_on(config, workdir):
    """Reports what is not a record, and never asks."""
    said = {
        "backwards": [{"samples": 8}, {"samples": 4}],
        "no samples": [{"train_loss": 1.0}],
        "NaN": [{"samples": n, "train_loss": float("nan")} for n in range(3)],
        "an object": [{"samples": 1, "what": object()}],
    }
    for record in said[config["kind"]]:
        autotune.report(**record)
    threading.Event().wait()


def raises(config, workdir):
    for step in range(1000):
        autotune.report(samples=step)
    raise ValueError("the loss is bad")


def nothing(config, workdir):
    return {"a": "history"}


def returns_an_iterator(config, workdir):
    return ({"samples": step} for step in (1, 2))


def from_everywhere(config, workdir):
    """From a thread, a forked process, programs of two ranks, and from here, one after the other."""
    autotune.report(samples=0, who="itself")
    thread = threading.Thread(target=autotune.report, kwargs={"samples": 1, "who": "a thread"})
    fork = multiprocessing.get_context("fork").Process(
        target=lambda: autotune.report(samples=2, who="a fork")
    )
    for one in (thread, fork):
        one.start()
        one.join()
    program = "import autotune, os; autotune.report(samples=3, who='rank ' + os.environ['RANK'])"
    for rank in ("1", "0"):
        subprocess.run([sys.executable, "-c", program], env={**os.environ, "RANK": rank}, check=True)
    autotune.report(samples=4, who="itself")


def generator(config, workdir):
    autotune.report(samples=5)  # of no use where records are yielded
    own = {"threads": threading.active_count(), "has_socket": "AUTOTUNE_SOCKET" in os.environ}
    yield {"samples": 1, **own}


def stamped(config, workdir):
    """What another process is said to have done: at a time, in the future, and before that."""
    now_s = time.monotonic()
    yield Stamped({"samples": 1, "memory_peak_bytes": 5, "is_queued": True, "began_s": now_s}, now_s)
    time.sleep(0.01)
    yield Stamped({"samples": 2, "memory_peak_bytes": 7}, now_s + 1000)
    yield Stamped({"samples": 3, "memory_peak_bytes": 7}, now_s - 1000)
    yield {"samples": 4, "memory_peak_bytes": 9, "is_queued": True, "stands_for": 7}
