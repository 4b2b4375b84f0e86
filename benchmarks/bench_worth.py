"""Compares searches that end once they have paid with searches of a fixed number of trials, by replay.

    python benchmarks/bench_worth.py [--seeds 20] [--times 10 100 1000] [TABLE ...]

For trainings that take so many times as long as the baseline's trial: the search's time and that of the
trainings with its winner, together, as a share of the trainings' time as they were. Means over the seeds.
"""

import argparse
import statistics
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path

from lab.replay import replay
from lab.replay.scoring import Truth
from lab.replay.table import Table

_TABLES = Path(__file__).parent / "tables"
_NAMES = ("drawn", "iu-xray", "shapes", "librispeech-a40", "movielens-p100", "squad-v100")
_FIXED, _MOST = (2, 5, 10, 20, 40), 200


@cache  # of one process
def _read(file: Path) -> tuple[Table, Truth]:
    table = Table.read(file)
    return table, Truth(table)


def total(file: Path, times: float, trials: int | None, seed: int) -> float:
    """Returns the share for one search: of `trials`, or, if None, of as many as pay."""
    table, truth = _read(file)
    baseline = table.space.baseline_config
    worth_s = times * table.space.budget.samples_per_trial / truth.speed(baseline)
    result = replay.search(table, seed, trials or _MOST, worth_s=None if trials else worth_s)
    saved = truth.merit(baseline) / truth.merit(result.winner) if truth.merit(result.winner) else 1.0
    return result.seconds / worth_s + saved


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="*", type=Path)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--times", type=float, nargs="+", default=[10, 100, 1000])
    given = parser.parse_args()
    print(f"{'':16} {'trainings':>9} " + " ".join(f"{n:5} trials" for n in _FIXED) + "  as many as pay")
    with ProcessPoolExecutor() as pool:
        for file in given.tables or [_TABLES / f"{name}.jsonl" for name in _NAMES]:
            for times in given.times:
                jobs = {
                    trials: [pool.submit(total, file, times, trials, seed) for seed in range(given.seeds)]
                    for trials in (*_FIXED, None)
                }
                means = [statistics.fmean(job.result() for job in each) for each in jobs.values()]
                print(f"{file.stem:16} {times:9g} " + " ".join(f"{mean:12.2f}" for mean in means), flush=True)


if __name__ == "__main__":
    main()
