"""Compares races with sequential runs: the certainty of a confirmed gain, and its cost.

    python benchmarks/bench_race.py [--races 10] [--disturb]

The small r2gen on drawn data, in batches of 4 and of 32. A race as in a search, then three pairs of
sequential runs that together take as long as the race, starts included: the factor is the mean of the pairs,
its interval Student's t at the race's confidence level. With `--disturb` another process uses a CPU in bursts
of random length. Prints median, minimum and maximum over all races.
"""

import argparse
import math
import multiprocessing
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from autotune.core.measurement import Metric
from autotune.core.settings import Setting
from autotune.judging.measurement import turns
from autotune.judging.measurement.estimates import half_interval
from autotune.trials.attempt import Attempt
from autotune.trials.fork_server import ForkServer
from autotune.trials.order import NEVER, Ends, Order, RaceOrder, Racer
from autotune.trials.race import Race
from autotune.workloads.r2gen import R2GenWorkload

_BATCHES = (4, 32)
_PAIRS = 3
_RACE_S = 120.0
_BURST_S = 2.0  # mean length of a burst, and of the rest between two


@dataclass(frozen=True)
class Found:
    """A factor, the relative width of its interval, and the seconds spent."""

    factor: float
    width: float
    seconds: float


def order(number: int, batch: int, directory: Path) -> Order:
    """Returns the order of an endless run of the small model with this batch."""
    workload = R2GenWorkload()
    baseline: dict[str, Setting] = {**workload.models["small"], "micro_batch_size": batch, "num_workers": 0}
    settings = workload.complete(baseline)
    return Order(
        number=number,
        workload=workload.value,
        settings=workload.for_trial(settings, NEVER, 1, "bleu_4"),
        directory=str(directory / f"member-{number}"),
        metric=Metric("bleu_4"),
        ends=Ends(NEVER),
    )


def run_race(server: ForkServer) -> Found:
    """Returns the result of a race."""
    begun_s = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        orders = [order(number, batch, Path(scratch)) for number, batch in enumerate(_BATCHES)]
        members = tuple(Racer(one, NEVER) for one in orders)
        race = Race(RaceOrder(9, scratch, members, together=True, most_s=_RACE_S), server)
        while (report := race.step(1.0)).outcome is None:
            pass
    ratio = turns.ratio(report.measurement.slices, 1, 0)
    if ratio is None:
        raise SystemExit(f"the race has failed: {report.outcome}")
    return Found(ratio.value, 2 * (ratio.part or math.inf), time.monotonic() - begun_s)


def run_one_by_one(server: ForkServer, seconds: float) -> Found:
    """Returns the result of sequential pairs of runs within `seconds`."""
    begun_s, logs = time.monotonic(), []
    for turn in range(_PAIRS):
        places = (0, 1) if turn % 2 == 0 else (1, 0)
        speeds = {place: speed(place, server, seconds / _PAIRS / len(places)) for place in places}
        logs.append(math.log(speeds[1] / speeds[0]))
    half = half_interval(logs, turns.LEVEL)
    return Found(math.exp(statistics.fmean(logs)), 2 * math.sinh(half), time.monotonic() - begun_s)


def speed(place: int, server: ForkServer, seconds: float) -> float:
    """Returns the samples per second of a run of `seconds`, its start included."""
    deadline = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as scratch:
        attempt = Attempt(order(place, _BATCHES[place], Path(scratch)), server)
        try:
            while time.monotonic() < deadline or attempt.measurement().throughput is None:
                attempt.step(0.2)
        finally:
            throughput = attempt.measurement().throughput
            attempt.stop()
    return throughput.samples_per_s if throughput else math.nan


@contextmanager
def disturbance() -> Iterator[None]:
    """Runs another process that uses a CPU in bursts."""
    other = multiprocessing.get_context("spawn").Process(target=disturb, daemon=True)
    other.start()
    try:
        yield
    finally:
        other.kill()
        other.join()


def disturb() -> None:
    """Alternates between work and rest, forever."""
    rng = random.Random(0)
    while True:
        until_s = time.monotonic() + rng.expovariate(1 / _BURST_S)
        while time.monotonic() < until_s:
            pass
        time.sleep(rng.expovariate(1 / _BURST_S))


def line(name: str, found: Sequence[Found]) -> str:
    """Formats the median and range of factor, width and seconds."""
    columns = [
        f"{statistics.median(values):6.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"
        for values, digits in (
            ([one.factor for one in found], 3),
            ([one.width for one in found], 3),
            ([one.seconds for one in found], 0),
        )
    ]
    return f"{name:10} " + " ".join(f"{column:>26}" for column in columns)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--races", type=int, default=10)
    parser.add_argument("--disturb", action="store_true")
    given = parser.parse_args(arguments)
    server = ForkServer(R2GenWorkload().preload)
    races, runs = [], []
    with disturbance() if given.disturb else nullcontext():
        for _ in range(given.races):
            races.append(run_race(server))
            runs.append(run_one_by_one(server, races[-1].seconds))
            print(f"race {races[-1]}, runs {runs[-1]}", flush=True)
    print(f"{'':10} {'factor':>26} {'width':>26} {'seconds':>26}")
    print(line("races", races))
    print(line("runs", runs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
