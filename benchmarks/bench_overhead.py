"""What the tuner itself costs: the gap between two trials, its share of a search, a suggestion's time.

    python benchmarks/bench_overhead.py [--trials 20]

A real search under Ray Tune over a workload that does nothing for a second (instant.py): the gap is from
the last record of one trial to the first line of the next one's workload, in a fresh process. Then one
suggestion with 50, 200 and 1,000 trials known, over the search space for GPUs.
"""

import argparse
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import optuna

from autotune.cli import prepare
from autotune.core.trial import Evaluation, Measurement, Outcome, Status, Throughput
from autotune.engines import engine
from autotune.search.search import Search
from autotune.search.surroundings import Silent
from autotune.space import builtin
from autotune.space import space as spaces
from autotune.storage import studies
from autotune.storage.records import read_records
from autotune.storage.store import Options, Session
from autotune.storage.trial_dir import TrialDir
from autotune.system import scratch
from autotune.system.nvml import Gpu
from autotune.system.telemetry import Hardware, hardware
from autotune.trials.setup import Setup
from autotune.workloads import registry

_SPACE = """
workload: instant:fit
baseline: {micro_batch_size: 8, learning_rate: 1.0e-3}
knobs:
  micro_batch_size: {choice: [8, 16, 32, 64]}
  learning_rate: {scale: sqrt}
objective: {quality: score, keep: 0.5}
budget: {samples_per_trial: 640, evaluations_per_trial: 1, repeats: 0}
"""


def gaps(trials: int) -> tuple[list[float], float]:
    """Seconds from one trial's last record to the next one's first line; and the tuner's share of time."""
    space = spaces.complete(spaces.parse(_SPACE, "here"), "here")
    machine = hardware()
    with tempfile.TemporaryDirectory() as directory, scratch.private() as place:
        session = Session.create(Path(directory, "s"), space, Options(wandb="off"), {})
        study = studies.open_study(session.study_file, space)
        studies.set_plan(study, studies.Plan(trials, None))
        search = Search(space, study, Silent())
        setup = Setup(session, space, registry.load(space.workload), machine)
        engine.run(search, setup, place.guardian)
        spans = [_span(session.trial_dir(trial.number)) for trial in search.trials()]
    between = [after[0] - before[1] for before, after in itertools.pairwise(spans)]
    return between, sum(between) / (spans[-1][1] - spans[0][0])


def _span(place: TrialDir) -> tuple[float, float]:
    times = [r["at_s"] for r in read_records(place) if "at_s" in r]
    return times[0], times[-1]


def suggestion_s(known: int) -> float:
    """Seconds that the median of five suggestions takes with so many trials known."""
    gpu = Hardware(16, 64 * 2**30, (Gpu("GPU", 80 * 2**30, (9, 0), "u"),), None)
    file = builtin.space_for(gpu)
    settings = {"data": str(Path(__file__).parent)}
    asked = prepare.read_space(file, {"budget": {"trials": known + 10, "repeats": 0}})
    space = spaces.complete(asked.model_copy(update={"baseline": {**asked.baseline, **settings}}), "here")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    search = Search(space, optuna.create_study(directions=["maximize"] * 2), Silent())
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
    print(
        json.dumps(
            {
                "gap_s": {
                    "median": round(statistics.median(between), 3),
                    "longest": round(max(between), 3),
                    "first": round(between[0], 3),
                },
                "share_of_a_search_of_1_s_trials": round(share, 3),
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
