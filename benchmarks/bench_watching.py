"""What watching a training costs: the same steps trained by themselves, and as a trial is.

    python benchmarks/bench_watching.py [--steps 400] [--pairs 8] [--trackers] [--small]

A training with the small R2Gen model on drawn data, or with --small one of a layer, whose steps take under a
millisecond: so short that whatever is done for each of them shows. Both sides take turns, a process each.
By itself it is a loop over the trainer's records that notes the time of each. Watched, it is what `train`
and a search do: a supervised process whose records are stamped, sent, counted and written, with telemetry
once a second, its FLOPs counted in the first steps; with --trackers W&B and TensorBoard besides. Prints the
milliseconds that a step takes on either side, pair by pair, and what the process that watches spends of a
CPU.
"""

import argparse
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import torch
from torch import nn

from autotune import workloads
from autotune.judging.measure import half_interval
from autotune.space import space as spaces
from autotune.storage.records import read_records
from autotune.trackers.tensorboard import Board
from autotune.trackers.tracking import Tracker
from autotune.trials import alone
from autotune.trials.fork_server import ForkServer
from autotune.trials.order import Order
from autotune.trials.progress import Progress
from autotune.trials.reported import Report

BATCH = 8
R2GEN = {"micro_batch_size": BATCH, "num_workers": 0}
SPACE = "{workload: x:fit, baseline: {micro_batch_size: 8}, knobs: {micro_batch_size: {choice: [8, 16]}}}"


def fit(config: Mapping[str, Any], workdir: Path) -> Iterator[Mapping[str, Any]]:
    """Steps of a layer on one thread, so many, and a score."""
    del workdir
    torch.set_num_threads(1)
    model, images = nn.Linear(64, 64), torch.randn(BATCH, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(1, config["steps"] + 1):
        loss = model(images).square().mean()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        yield {"samples": step * BATCH, "train_loss": loss.item()}
    yield {"samples": config["steps"] * BATCH, "bleu_4": 0.0}


@dataclass(frozen=True)
class Training:
    """What is trained on either side, for so many samples."""

    workload: str
    settings: dict[str, Any]
    samples: int

    def step_s(self, records: Iterator[Mapping[str, Any]]) -> float:
        """Seconds of a step in the steady state, by the same rule on both sides."""
        progress = Progress("bleu_4", self.settings)
        for record in records:
            progress.count(record)
        found = progress.measurement().throughput
        if found is None:
            raise SystemExit("too few steps: more --steps are needed")
        return found.seconds / found.steps


def training(steps: int, *, small: bool) -> Training:
    if small:
        return Training("bench_watching:fit", {"steps": steps}, steps * BATCH)
    workload = workloads.load(workloads.BUILTIN)
    settings = workload.complete(workload.fill({**workload.models["small"], **R2GEN}))
    return Training(
        workloads.BUILTIN, workload.for_trial(settings, steps * BATCH, 1, "bleu_4"), steps * BATCH
    )


def train(pipe: Connection, of: Training, directory: str) -> None:
    """Trains by itself, and sends its records with the time of each."""
    records = []
    for record in workloads.load(of.workload).fit(of.settings, Path(directory)) or ():
        records.append({**record, "at_s": time.monotonic()})
        if "bleu_4" in record and record["samples"] >= of.samples:
            break
    pipe.send(records)


def by_itself(of: Training) -> float:
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    with tempfile.TemporaryDirectory() as directory:
        process = multiprocessing.get_context("spawn").Process(target=train, args=(theirs, of, directory))
        process.start()
        theirs.close()
        records = ours.recv()
        process.join()
    return of.step_s(iter(records))


def watched(of: Training, server: ForkServer, *, tracked: bool) -> tuple[float, float]:
    """Seconds of a step, and CPU seconds that this process took for each second of the training."""
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        order = Order(0, of.workload, of.settings, directory, "bleu_4", of.samples)
        heard = stack.enter_context(_Trackers(Path(directory))) if tracked else None
        begun_s, before_s = time.monotonic(), _cpu_s()
        outcome, _ = alone.run(order, server, heard)
        share = (_cpu_s() - before_s) / (time.monotonic() - begun_s)
        if not outcome.status == "completed":
            raise SystemExit(f"the training has failed: {outcome.reason}")
        return of.step_s(read_records(order.place)), share


def _cpu_s() -> float:
    times = psutil.Process().cpu_times()
    return times.user + times.system


class _Trackers:
    """W&B, offline, and TensorBoard, told as Ray Tune tells them."""

    def __init__(self, directory: Path) -> None:
        self._board = Board(directory / "tensorboard", spaces.parse(SPACE, "here"))
        self._tracker = Tracker(directory, "bench", "offline")
        self._trial = SimpleNamespace(config={"number": 0, "config": {"micro_batch_size": BATCH}})

    def __enter__(self) -> Any:
        for tracker in (self._board, self._tracker):
            tracker.log_trial_start(self._trial)
        return self

    def __call__(self, report: Report) -> None:
        for tracker in (self._board, self._tracker):
            tracker.log_trial_result(1, self._trial, report.to_dict())

    def __exit__(self, *error: Any) -> None:
        for tracker in (self._board, self._tracker):
            tracker.log_trial_end(self._trial)
        self._tracker.__exit__(*error)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--trackers", action="store_true")
    parser.add_argument("--small", action="store_true")
    given = parser.parse_args()
    of = training(given.steps, small=given.small)
    server, more = ForkServer(["torch", "r2gen.train"]), []
    print("| by itself, ms | watched, ms | more, ms | CPU of the watcher |\n| --- | --- | --- | --- |")
    for number in range(given.pairs):
        plain_first = [by_itself(of)] if number % 2 else []
        watched_s, share = watched(of, server, tracked=given.trackers)
        (plain_s,) = plain_first or [by_itself(of)]
        more.append(1000 * (watched_s - plain_s))
        row = (f"{1000 * plain_s:.3f}", f"{1000 * watched_s:.3f}", f"{more[-1]:.3f}", f"{share:.1%}")
        print(f"| {' | '.join(row)} |", flush=True)
    half = half_interval(more) if len(more) > 1 else float("nan")
    print(f"\nA step takes {statistics.fmean(more):.3f} ± {half:.3f} ms more (95%).")


if __name__ == "__main__":
    main()
