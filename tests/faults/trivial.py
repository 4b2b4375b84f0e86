"""Workloads that train nothing: a hanging, a slow and a brief one."""

import itertools
import multiprocessing
import os
import signal
import time


def hangs(config, workdir):
    """Hangs after three steps as configured, and creates a file when it does."""
    hang, hanging = config["hang"], workdir / "hanging"
    if hang == "at once":
        sleeps(hanging)
    for step in range(1, 4):
        yield {"samples": 4 * step, "train_loss": 1.0}
    if hang in HANGS:
        HANGS[hang](hanging)
    try:
        yield {"samples": 16, "train_loss": 1.0}
        yield {"samples": 16, "bleu_4": 0.2}
    finally:
        if hang == "when closed":
            sleeps(hanging)


def slow(config, workdir):
    """Takes 100 steps, resuming where an earlier attempt stopped."""
    workdir.mkdir(parents=True, exist_ok=True)
    state = workdir / "samples"
    samples = int(state.read_text()) if state.exists() else 0
    try:
        while samples < 400:
            time.sleep(config["step_s"])
            samples += 4
            yield {"samples": samples, "train_loss": 1.0}
        yield {"samples": samples, "bleu_4": 0.2}
    finally:
        state.write_text(str(samples))
        if config["hang"] == "when closed":
            sleeps(workdir / "hanging")


def brief(config, workdir):
    for step in range(1, 9):
        yield {"samples": 4 * step, "train_loss": 1.0}
    yield {"samples": 32, "bleu_4": 0.2}


def sleeps(hanging):
    hanging.touch()
    time.sleep(3600)


def holds_the_gil(hanging):
    hanging.touch()
    max(itertools.repeat(0))


def is_stopped(hanging):
    hanging.touch()
    os.kill(os.getpid(), signal.SIGSTOP)


def waits_for_a_worker(hanging):
    with multiprocessing.get_context("fork").Pool(1) as workers:
        workers.apply(never_returns, (hanging,))


def never_returns(hanging):
    hanging.touch()
    time.sleep(3600)


HANGS = {
    "in Python": sleeps,
    "in C with the GIL": holds_the_gil,
    "stopped": is_stopped,
    "in a worker": waits_for_a_worker,
}
