"""A workload that yields invalid records of a `kind`. Valid kinds take steps of 4 samples."""

import itertools
import math
import os
import time

STEP_S = 0.002


def steps(quality=0.2, first=4, **more):
    """Trains forever, with an evaluation every 40 samples."""
    for samples in itertools.count(first, 4):
        time.sleep(STEP_S)
        yield {"samples": samples, "train_loss": 1.0, **more}
        if samples % 40 == 0:
            yield {"samples": samples, "bleu_4": quality}


def after(samples, record):
    """Yields valid records until `samples`; from then on `record` replaces every other one."""
    yield from itertools.takewhile(lambda r: r["samples"] < samples, steps())
    yield record


def endless(record):
    while True:
        time.sleep(STEP_S)
        yield record


def tensor():
    import torch

    return torch.ones(3)


def of_losses(loss):
    for record in steps():
        yield {**record, "train_loss": loss}


def twice():
    for record in steps():
        yield record
        if "bleu_4" in record:
            yield {**record, "bleu_4": 0.2}


def raises_after_the_last():
    yield from itertools.takewhile(lambda r: r["samples"] <= 80, steps())
    raise RuntimeError("what came of it does not matter any more")


def leaks():
    yield {"samples": 4}
    print(dict(os.environ))
    keys = [os.environ[name] for name in ("WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY")]
    raise RuntimeError(f"401: {keys} are not valid")


def backwards():
    yield from itertools.takewhile(lambda r: r["samples"] < 40, steps())
    yield {"samples": 8, "train_loss": 1.0}


def own_clock():
    for record in steps():
        yield {**record, "at_s": 1e9 * record["samples"], "attempt": 1, "clock_s": 0.0}


def stopped_clock():
    time.monotonic = lambda: 1.0
    yield from steps()


def figures():
    """Yields figures of the trainer's own that are no numbers."""
    nonsense = {
        "forward_s": "soon",
        "backward_s": math.nan,
        "data_s": [1],
        "memory_peak_reserved_bytes": "much",
    }
    yield from steps(**nonsense, memory_peak_bytes=-1, optimizer_s=10**400)


def poor_scores():
    for record in steps():
        yield {**record, "rouge_l": math.nan, "cider": 10**400, "text": "x"} if "bleu_4" in record else record


def quick():
    """Yields valid records, several times as fast."""
    for samples in itertools.count(16, 16):
        time.sleep(STEP_S)
        yield {"samples": samples, "train_loss": 1.0}
        if samples % 80 == 0:
            yield {"samples": samples, "bleu_4": 0.2}


KINDS = {
    "sane": steps,
    "fast": quick,
    "quality nan": lambda: steps(math.nan),
    "quality inf": lambda: steps(math.inf),
    "quality 1e308": lambda: steps(1e308),
    "quality huge": lambda: steps(10**400),
    "quality str": lambda: steps("0.9"),
    "quality bool": lambda: steps(quality=True),
    "quality none": lambda: steps(None),
    "quality list": lambda: steps([0.9]),
    "quality tensor": lambda: steps(tensor()),
    "no quality": lambda: (r for r in steps() if "bleu_4" not in r),
    "twice": twice,
    "loss nan": lambda: of_losses(math.nan),
    "loss inf": lambda: of_losses(-math.inf),
    "backwards": backwards,
    "samples bool": lambda: after(40, {"samples": True}),
    "samples float": lambda: after(40, {"samples": 44.0}),
    "samples negative": lambda: endless({"samples": -4}),
    "samples huge": lambda: after(40, {"samples": 10**400}),
    "samples beyond": lambda: after(40, {"samples": 10**5000}),
    "no samples": lambda: after(40, {"train_loss": 1.0}),
    "standing still": lambda: endless({"samples": 4, "train_loss": 1.0}),
    "evaluated for ever": lambda: endless({"samples": 4, "bleu_4": 0.9}),
    "nothing": lambda: iter(()),
    "text": lambda: iter(["samples"]),
    "none": lambda: iter([None]),
    "shorter": lambda: itertools.takewhile(lambda r: r["samples"] <= 40, steps()),
    "evaluated too early": lambda: itertools.takewhile(lambda r: r["samples"] <= 60, steps()),
    "raises after the last": raises_after_the_last,
    "evaluations only": lambda: (r for r in steps() if "bleu_4" in r),
    "own clock": own_clock,
    "stopped clock": stopped_clock,
    "figures": figures,
    "poor scores": poor_scores,
    "leaks": leaks,
}


def fit(config, workdir):
    print("forked by", os.getppid())
    yield from KINDS[config["kind"]]()
