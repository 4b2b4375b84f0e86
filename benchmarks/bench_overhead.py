"""Measures the tuner's overhead: the gap between trials, its share of a search, a suggestion's time.

    python benchmarks/bench_overhead.py [--trials 20]

First one suggestion with 50, 200 and 1,000 known trials, over the search space for GPUs. Then a real search
under Ray Tune over a workload that does nothing for a second and fails every other time (instant.py): a gap
is the time from a trial's last record, by outcome, to the first line of the next one's workload.
"""

import argparse
import itertools
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import optuna

from autotune.core.measurement import Evaluation, Measurement, Throughput
from autotune.core.trial import Outcome, Status
from autotune.engines import engine
from autotune.searcher.ports import Listener
from autotune.searcher.search import Search
from autotune.sessions import prepare
from autotune.space import builtin, spaces
from autotune.storage import studies, study_file
from autotune.storage.layout import TrialDir
from autotune.storage.records import read_records
from autotune.storage.store import Options, StoredSession
from autotune.system import scratch
from autotune.system.nvml import Gpu
from autotune.system.telemetry import Hardware, hardware
from autotune.trials.setup import Setup
from autotune.workloads import registry

_SPACE = """
workload: instant:fit_or_fail
baseline: {micro_batch_size: 8, learning_rate: 1.0e-3}
knobs:
  micro_batch_size: {choice: [8, 16, 32, 64]}
  learning_rate: {loguniform: [1.0e-4, 1.0e-2]}
objective: {quality: score, select: pareto}
budget: {samples_per_trial: 640, evaluations_per_trial: 1, repeats: 0}
"""


def gaps(trials: int) -> tuple[dict[str, list[float]], float]:
    """Returns the seconds between trials by the first one's outcome, and the tuner's share of the time."""
    space = spaces.complete(spaces.parse(_SPACE, "here"), "here")
    machine = hardware()
    with tempfile.TemporaryDirectory() as directory, scratch.private() as guardian:
        session = StoredSession.create(Path(directory, "s"), space, Options(wandb="off"), {})
        study = studies.open_study(session.study_file, space)
        studies.set_plan(study, study_file.SearchPlan(trials, None))
        search = Search(space, study, Listener())
        setup = Setup(session, space, registry.load(space.workload), machine)
        engine.run(search, setup, guardian)
        ended = search.history.trials
        spans = [_span(session.trial_dir(trial.number)) for trial in ended]
    between: dict[str, list[float]] = defaultdict(list)
    for trial, (before, after) in zip(ended, itertools.pairwise(spans), strict=False):
        between[str(trial.outcome)].append(after[0] - before[1])
    return between, sum(map(sum, between.values())) / (spans[-1][1] - spans[0][0])


def _span(place: TrialDir) -> tuple[float, float]:
    times = [r["at_s"] for r in read_records(place) if "at_s" in r]
    return times[0], times[-1]


def suggestion_s(known: int) -> float:
    """Returns the median seconds of five suggestions with `known` trials."""
    gpu = Hardware(16, 64 * 2**30, (Gpu("GPU", 80 * 2**30, (9, 0), "u"),), None)
    file = builtin.space_for(gpu)
    settings = {"data": str(Path(__file__).parent)}
    asked = prepare.read_space(file, {"budget": {"trials": known + 10, "repeats": 0}})
    space = spaces.complete(asked.model_copy(update={"baseline": {**asked.baseline, **settings}}), "here")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    search = Search(space, optuna.create_study(directions=["maximize"] * 2), Listener())
    taken = []
    while (begun := time.perf_counter()) and (trial := search.next()) is not None:
        taken.append(time.perf_counter() - begun)
        batch = float(trial.config["micro_batch_size"] or 1)
        speed = batch / (batch + 24) * (1 + len(trial.config) / (trial.number + 10))
        curve = tuple(Evaluation(n, n / speed, 0.1) for n in (5000, 10000, 15000, 20000))
        figures = Measurement(
            Throughput(speed, speed / 100, 100, 60.0), 0.1, 20000, curve=curve, samples=20000
        )
        search.end(trial.number, Outcome(Status.COMPLETED), figures)
    return statistics.median(taken[-5:])


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=20)
    given = parser.parse_args(arguments)
    for known in (50, 200, 1000):
        print(f"a suggestion with {known} trials known: {1000 * suggestion_s(known):.0f} ms", flush=True)
    between, share = gaps(given.trials)
    for ended, gap_s in between.items():
        middle, most = statistics.median(gap_s), max(gap_s)
        print(f"after {len(gap_s)} trials, {ended}: a gap of {middle:.2f} s (median; at most {most:.2f} s)")
    print(f"the tuner's share of a search of such trials: {share:.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
