"""Workloads as users write them: their module asks at once where to train."""

import itertools
import time

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
MIB = 2**20


def trains(config, workdir):
    """Takes and frees memory in every step, as a step does that is as large as its batch."""
    torch.zeros(4, device=DEVICE)
    for step in range(1, 4):
        torch.cuda.fake.allocate(config["mib"] * MIB)
        torch.cuda.fake.release(config["mib"] * MIB)
        yield {"samples": 8 * step, "train_loss": 1.0}
    yield {"samples": 24, "r2": 0.5, "is_queued": True}


def grows(config, workdir):
    """Needs a little more with every step, and in the end more than there is."""
    for step in itertools.count(1):
        torch.cuda.fake.allocate(config["mib"] * MIB)
        yield {"samples": 8 * step, "train_loss": 1.0}


def meets_another(config, workdir):
    """Another process takes memory while it trains, and then it asks for more, within what it may take."""
    torch.cuda.fake.allocate(100 * MIB)
    yield {"samples": 8, "train_loss": 1.0}
    torch.cuda.fake.set["elsewhere_bytes"] += config["others_mib"] * MIB
    torch.cuda.fake.allocate(1000 * MIB)
    yield {"samples": 16, "r2": 0.5}


def runs_ahead(config, workdir):
    """Gives the GPU steps of 20 ms and never waits for them; its evaluation does."""
    for step in range(1, config["steps"] + 1):
        torch.cuda.fake.launch(0.02)
        yield {"samples": 8 * step, "train_loss": 1.0}
    torch.cuda.fake.wait()
    yield {"samples": 8 * step, "r2": 0.5, "waits": torch.cuda.fake.waits}


def waits(config, workdir):
    """Reads its loss after every step."""
    for step in range(1, 21):
        torch.cuda.fake.launch(0.01)
        torch.cuda.fake.wait()
        yield {"samples": 8 * step, "train_loss": 1.0}
    yield {"samples": 160, "r2": 0.5, "waits": torch.cuda.fake.waits}


def stays_on_the_host(config, workdir):
    """Has a GPU, and does not use it."""
    held = torch.ones(8 * MIB)
    for step in range(1, 4):
        time.sleep(0.01)
        yield {"samples": 8 * step, "train_loss": float(held[0])}


def says_its_limits(config, workdir):
    import resource

    yield {"samples": 8, "data_limit": resource.getrlimit(resource.RLIMIT_DATA)[0]}


def raises(config, workdir):
    yield {"samples": 8, "train_loss": 1.0}
    raise RuntimeError(config["text"])
