"""Measures the overhead of observing a training: the same steps trained alone, and as a trial.

    python benchmarks/bench_watching.py [--steps 400] [--pairs 8] [--trackers] [--small]
    python benchmarks/bench_watching.py --command 64 [--pairs 4] [--turns 40] [--busy 0.3]

A training of the small R2Gen model on drawn data, or with --small of a single layer, whose steps take under a
millisecond, so that any cost per step shows. Both sides take turns, a process each, on one thread. Alone, it
is a loop over the trainer's records. Observed, it is what `train` and a search do: a supervised process whose
records are stamped, sent, counted and written, with telemetry once a second and FLOP counting in the first
steps; with --trackers also W&B and TensorBoard. Prints per pair the milliseconds per step of the training
process's CPU time, which hardly depend on other load, and of wall-clock time, and the observing process's
share of a CPU.

With --command a script with this batch is the trial of a real search. Turns of two seconds alternate: with
the search, and alone, without the hook and with the search suspended. Two turns count if other programs kept
fewer than --busy cores busy. Each of --pairs starts everything anew. Prints the trial's speed relative to the
script alone, by its ledger, with a 95% interval over the turns; each search process's use of a core; and how
often it waits and is woken.
"""

import argparse
import math
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import in_turns
import psutil
import torch
from torch import nn

from autotune.core.measurement import Metric
from autotune.core.trial import Status
from autotune.judging.measurement.estimates import half_interval
from autotune.space import spaces
from autotune.storage.layout import SessionDir
from autotune.storage.records import read_records
from autotune.trackers import ray_callback
from autotune.trackers import registry as trackers
from autotune.trackers.tracker import Context
from autotune.trials import attempt
from autotune.trials.fork_server import ForkServer
from autotune.trials.order import Ends, Order
from autotune.trials.report import TrialReport
from autotune.workloads import registry
from r2gen import train

BATCH = 8
R2GEN = {"micro_batch_size": BATCH, "num_workers": 0}
SPACE = "{workload: x:fit, baseline: {micro_batch_size: 8}, knobs: {micro_batch_size: {choice: [8, 16]}}}"


def fit(config: Mapping[str, Any], workdir: Path) -> Iterator[Mapping[str, Any]]:
    """Yields R2Gen's records, or a layer's, with their process's CPU time."""
    torch.set_num_threads(1)
    trained = layer(config["steps"]) if "steps" in config else train.fit(config, workdir)
    for record in trained:
        yield {**record, "cpu_s": time.process_time()}


def layer(steps: int) -> Iterator[Mapping[str, Any]]:
    """Yields steps of a single layer, and a score."""
    model, images = nn.Linear(64, 64), torch.randn(BATCH, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(1, steps + 1):
        loss = model(images).square().mean()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        yield {"samples": step * BATCH, "train_loss": loss.item()}
    yield {"samples": steps * BATCH, "bleu_4": 0.0}


@dataclass(frozen=True)
class Training:
    """The training on either side, with its length in samples."""

    settings: dict[str, Any]
    samples: int

    def step(self, records: Iterable[Mapping[str, Any]]) -> "Step":
        """Returns the cost of a steady-state step, by the same rule on both sides."""
        taken = [record for record in records if "train_loss" in record]
        steady = [record for record in taken if record["samples"] > self.samples / 4]
        first, last = steady[0], steady[-1]
        seconds = [last[clock] - first[clock] for clock in ("cpu_s", "at_s")]
        return Step(*(1000 * value / (len(steady) - 1) for value in seconds))


class Step(NamedTuple):
    """Milliseconds per step: CPU time of the training process, and wall-clock time."""

    cpu_ms: float
    wall_ms: float


def training(steps: int, *, small: bool) -> Training:
    if small:
        return Training({"steps": steps}, steps * BATCH)
    workload = registry.load(registry.BUILTIN)
    settings = workload.complete({**workload.models["small"], **R2GEN})
    return Training(workload.for_trial(settings, steps * BATCH, 1, "bleu_4"), steps * BATCH)


def train_alone(pipe: Connection, of: Training, directory: str) -> None:
    """Trains alone, and sends the timestamped records."""
    os.setsid()  # as a trial does: Linux divides a CPU between sessions
    records = []
    for record in fit(of.settings, Path(directory)):
        records.append({**record, "at_s": time.monotonic()})
        if record["samples"] >= of.samples and "bleu_4" in record:
            break
    pipe.send(records)


def step_alone(of: Training) -> Step:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    with tempfile.TemporaryDirectory() as directory:
        process = context.Process(target=train_alone, args=(theirs, of, directory))
        process.start()
        theirs.close()
        records = ours.recv()
        process.join()
    return of.step(records)


def step_watched(of: Training, server: ForkServer, *, tracked: bool) -> tuple[Step, float]:
    """Returns the step, and this process's CPU seconds per second of training."""
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        order = Order(0, "bench_watching:fit", of.settings, directory, Metric("bleu_4"), Ends(of.samples))
        heard = stack.enter_context(_Trackers(Path(directory))) if tracked else None
        begun_s, before_s = time.monotonic(), _cpu_s()
        outcome, _ = attempt.run_alone(order, server, heard)
        share = (_cpu_s() - before_s) / (time.monotonic() - begun_s)
        if outcome.status is not Status.COMPLETED:
            raise SystemExit(f"the training has failed: {outcome.reason}")
        return of.step(read_records(order.place)), share


def _cpu_s() -> float:
    times = psutil.Process().cpu_times()
    return times.user + times.system


class _Trackers:
    """W&B, offline, and TensorBoard, called as by Ray Tune."""

    def __init__(self, directory: Path) -> None:
        space = spaces.parse(SPACE, "here")
        self._trackers = trackers.open_trackers(
            Context(SessionDir(directory), "bench", space.metric, wandb="offline")
        )
        self._callback = ray_callback.callback(self._trackers)
        self._trial = SimpleNamespace(config={"number": 0, "config": {"micro_batch_size": BATCH}})

    def __enter__(self) -> Any:
        self._callback.log_trial_start(self._trial)
        return self

    def __call__(self, report: TrialReport) -> None:
        self._callback.log_trial_result(1, self._trial, asdict(report))

    def __exit__(self, *error: Any) -> None:
        self._callback.log_trial_end(self._trial)
        self._trackers.__exit__(*error)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--trackers", action="store_true")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--command", type=int, metavar="BATCH")
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--busy", type=float, default=0.3)
    given = parser.parse_args()
    if given.command:
        in_turns.compare(given.command, given.pairs, given.turns, given.busy)
        return
    of = training(given.steps, small=given.small)
    server, more = ForkServer(["bench_watching"]), []
    columns = ("CPU by itself, ms", "CPU watched, ms", "more", "by the clock", "watched", "the watcher's CPU")
    print(f"| {' | '.join(columns)} |\n{'| --- ' * len(columns)}|")
    for number in range(given.pairs):
        plain_first = [step_alone(of)] if number % 2 else []
        ours, share = step_watched(of, server, tracked=given.trackers)
        (plain,) = plain_first or [step_alone(of)]
        more.append(ours.cpu_ms - plain.cpu_ms)
        row = (plain.cpu_ms, ours.cpu_ms, more[-1], plain.wall_ms, ours.wall_ms)
        print("".join(f"| {ms:.3f} " for ms in row) + f"| {share:.1%} |", flush=True)
    half = half_interval(more) if len(more) > 1 else math.nan
    print(f"\nA step takes {statistics.fmean(more):.3f} ± {half:.3f} ms of CPU time more (95%).")


if __name__ == "__main__":
    main()
