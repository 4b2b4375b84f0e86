"""Does a trial's figure hold in the real training? A short trial against whole epochs of the plain trainer.

    python benchmarks/check_throughput.py best.yaml [--samples 800] [--epochs 3] [--pairs 3] [--together]

`best.yaml` is an exported config. In turns: a trial as the search runs it, of `--samples` samples, and the
plain trainer over epochs 2 to 1 + `--epochs`, from the end of the epoch before to the end of the last step,
evaluation excluded (epoch 1 holds the start). Prints both in samples per second and the ratio of each pair.

`--together` is for CPUs whose speed wanders from minute to minute, as that of a shared machine does: both at
once, one thread each on a core of its own, which they swap from pair to pair. Epochs of few steps read low:
every one begins by writing a checkpoint.
"""

import argparse
import math
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from autotune.attempt import Attempt, Order
from autotune.child import ForkServer
from autotune.trial import Throughput
from autotune.workloads.r2gen import R2GenWorkload
from r2gen.train import fit

_EVALUATIONS = 4


@cache
def _server() -> ForkServer:
    return ForkServer(R2GenWorkload().preload)


def of_trial(settings: Mapping[str, Any], samples: int) -> Throughput:
    """What a trial of `samples` samples reads."""
    workload = R2GenWorkload()
    with tempfile.TemporaryDirectory() as scratch:
        order = Order(
            number=0,
            entry_point=workload.entry_point,
            settings=workload.for_trial(settings, samples, _EVALUATIONS, "bleu_4"),
            directory=scratch,
            quality="bleu_4",
            samples=samples,
        )
        attempt = Attempt(order, _server())
        while "outcome" not in (report := attempt.step(1.0)):
            pass
        attempt.stop()
    found = attempt.measurement().throughput
    if found is None:
        raise SystemExit(f"the trial has no figure: {report['outcome']}")
    return found


def of_epochs(settings: Mapping[str, Any], epochs: int) -> float:
    """Samples per second of the plain trainer over epochs 2 to 1 + `epochs`."""
    with tempfile.TemporaryDirectory() as scratch:
        trained, seconds, samples, before_s = 0, 0.0, 0, math.nan
        for record in fit({**settings, "epochs": 1 + epochs, "eval_every_samples": None}, Path(scratch)):
            now_s = time.perf_counter()
            if "bleu_4" not in record and record["epoch"] > 1:
                trained += record["samples"] - samples
                seconds += now_s - before_s
            samples, before_s = record["samples"], now_s
    return trained / seconds


def in_turns(settings: Mapping[str, Any], samples: int, epochs: int, number: int) -> tuple[Throughput, float]:
    """A trial's figure, then that of whole epochs; the other way round in every other pair."""
    if number % 2:
        whole = of_epochs(settings, epochs)
        return of_trial(settings, samples), whole
    return of_trial(settings, samples), of_epochs(settings, epochs)


def together(settings: Mapping[str, Any], samples: int, epochs: int, number: int) -> tuple[Throughput, float]:
    """Both figures, measured at the same time."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    mine, other = cores if number % 2 else cores[::-1]
    os.environ["OMP_NUM_THREADS"] = "1"
    spawn = multiprocessing.get_context("spawn")
    with (
        ProcessPoolExecutor(1, spawn, os.sched_setaffinity, (0, {mine})) as first,
        ProcessPoolExecutor(1, spawn, os.sched_setaffinity, (0, {other})) as second,
    ):
        short, whole = first.submit(of_trial, settings, samples), second.submit(of_epochs, settings, epochs)
        return short.result(), whole.result()


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the pairs and their ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config", type=Path)
    parser.add_argument("--samples", type=int, default=800)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--together", action="store_true")
    given = parser.parse_args(arguments)
    settings = yaml.safe_load(given.config.read_text(encoding="utf-8"))
    pair, ratios = together if given.together else in_turns, []
    for number in range(given.pairs):
        short, whole = pair(settings, given.samples, given.epochs, number)
        ratios.append(short.samples_per_s / whole)
        half = short.half_width_per_s or math.nan
        print(
            f"trial {short.samples_per_s:.1f} ± {half:.1f} samples/s in {short.seconds:.1f} s, "
            f"epochs {whole:.1f} samples/s: {ratios[-1]:.3f}",
            flush=True,
        )
    print(f"a trial reads {statistics.median(ratios):.3f} of what whole epochs give (median)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
