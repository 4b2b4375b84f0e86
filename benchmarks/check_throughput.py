"""Compares a short trial's throughput with whole epochs of the plain trainer.

    python benchmarks/check_throughput.py best.yaml [--samples 3200] [--pairs 4]

`best.yaml` is an exported config. A trial of `--samples` samples runs as in a search and, concurrently, the
plain trainer, of which the whole epochs within that time count, from the end of one evaluation to the last
step before the next. Both share one CPU, a thread each, in slices of some milliseconds, so that any other
load slows both. Prints both in samples per second, and the ratio of each pair.
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
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import yaml

from autotune.core.measurement import Metric, Throughput
from autotune.trials.attempt import Attempt
from autotune.trials.fork_server import ForkServer
from autotune.trials.order import Ends, Order
from autotune.workloads.r2gen import R2GenWorkload
from r2gen.train import fit

_EVALUATIONS = 4


def trial_throughput(settings: Mapping[str, Any], samples: int, server: ForkServer) -> Throughput:
    """Returns the throughput that a trial of `samples` samples measures."""
    workload = R2GenWorkload()
    with tempfile.TemporaryDirectory() as scratch:
        order = Order(
            number=0,
            workload=workload.value,
            settings=workload.for_trial(settings, samples, _EVALUATIONS, "bleu_4"),
            directory=scratch,
            metric=Metric("bleu_4"),
            ends=Ends(samples),
        )
        attempt = Attempt(order, server)
        while (report := attempt.step(1.0)).outcome is None:
            pass
        attempt.stop()
    throughput = attempt.measurement().throughput
    if throughput is None:
        raise SystemExit(f"the trial has no figure: {report.outcome}")
    return throughput


def train(settings: Mapping[str, Any], scratch: str, epochs: Connection) -> None:
    """Trains until killed; sends the begin and end time of every epoch, and its samples."""
    os.setsid()  # as a trial does: Linux divides a CPU between sessions
    begun_s, samples, last_s, last_samples = math.nan, 0, math.nan, 0
    for record in fit({**settings, "epochs": 10**6, "eval_every_samples": None}, Path(scratch)):
        now_s = time.monotonic()
        if "bleu_4" in record:
            epochs.send((begun_s, last_s, last_samples - samples))
            begun_s, samples = now_s, last_samples
        last_s, last_samples = now_s, record["samples"]


def pair(settings: Mapping[str, Any], samples: int, server: ForkServer) -> tuple[Throughput, float]:
    """Returns a trial's throughput, and samples per second of the whole epochs trained concurrently."""
    spawn = multiprocessing.get_context("spawn")
    receiver, sender = spawn.Pipe(duplex=False)
    with tempfile.TemporaryDirectory() as scratch:
        trainer = spawn.Process(target=train, args=(settings, scratch, sender), daemon=True)
        trainer.start()
        receiver.recv()  # the first epoch includes the startup
        begun_s = time.monotonic()
        throughput = trial_throughput(settings, samples, server)
        ended_s = time.monotonic()
        trainer.kill()
        trainer.join()
    epochs = [receiver.recv() for _ in iter(receiver.poll, False)]
    whole = [(end - begin, n) for begin, end, n in epochs if begun_s <= begin and end <= ended_s]
    if not whole:
        raise SystemExit(f"no epoch ends within the trial: give it more than {samples} --samples")
    return throughput, sum(n for _, n in whole) / math.fsum(seconds for seconds, _ in whole)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the pairs and their ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config", type=Path)
    parser.add_argument("--samples", type=int, default=3200)
    parser.add_argument("--pairs", type=int, default=4)
    given = parser.parse_args(arguments)
    settings = yaml.safe_load(given.config.read_text(encoding="utf-8"))
    os.environ["OMP_NUM_THREADS"] = "1"
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    server, ratios = ForkServer(R2GenWorkload().preload), []
    for _ in range(given.pairs):
        short, whole = pair(settings, given.samples, server)
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
