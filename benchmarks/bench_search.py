"""Replays whole searches over recorded tables: how soon and how reliably each strategy is right.

    python benchmarks/bench_search.py [--seeds 50] [--trials 40] [TABLE ...]

Columns, as medians over the seeds in simulated device time: until the recommendation is, and stays, within 5%
of the best that keeps the quality, as closer ones are indistinguishable in a race; until such a winner is
confirmed, in this project's way for all strategies; trials until the first; the whole search. Then
out-of-memory failures (mean), time in trials of settings that could not win, wrong winners (not within 5%, or
without the quality), and the winners' distance from the best (mean). The oracle knows the best configuration,
and only has to confirm it. A/A: searches in which every configuration runs as the baseline, and how many of
them claim a gain.
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from autotune.space import configurations
from lab.replay import scoring
from lab.replay.scoring import Truth
from lab.replay.table import Table

_TABLES = Path(__file__).parent / "tables"
_NAMES = ("drawn", "iu-xray", "shapes", "librispeech-a40", "movielens-p100", "squad-v100")


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the comparison for every table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="*", type=Path)
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--aa", type=int, default=50, help="A/A searches; 0: none")
    parser.add_argument("--only", choices=[*scoring.STRATEGIES, *scoring.VARIANTS], action="append")
    given = parser.parse_args(arguments)
    confirmed_s: dict[str, dict[object, float | None]] = defaultdict(dict)
    for file in given.tables or [_TABLES / f"{name}.jsonl" for name in _NAMES]:
        table = Table.read(file)
        truth, count = Truth(table), len(configurations.allowed(table.space) or [])
        print(
            f"{file.stem}: {count} configurations, {given.trials} trials, {given.seeds} seeds; "
            f"the best is {truth.best / truth.merit(table.space.baseline_config):.2f}x the baseline"
        )
        print(f"  {scoring.HEADING}")
        asked = given.only or [*scoring.STRATEGIES, scoring.TOLD_BEST]
        names = [name for name in asked if scoring.suits(name, table)]
        for name, scores in scoring.scores(file, names, given.seeds, given.trials).items():
            print(f"  {scoring.line(name, scores)}", flush=True)
            confirmed_s[name] |= {(file, seed): score.confirmed_s for seed, score in enumerate(scores)}
        if given.aa:
            claims = scoring.false_claims(file, given.aa, given.trials)
            print(f"  A/A: {claims} of {given.aa} searches claim a gain", flush=True)
    confirmed_s.pop(scoring.TOLD_BEST, None)
    print("share of all replays in which the winner is right and confirmed within 1x, 2x, 4x the least time:")
    for name, shares in scoring.profiles(confirmed_s).items():
        print(f"  {name:8} " + " ".join(f"{share:5.0%}" for share in shares))
    return 0


if __name__ == "__main__":
    sys.exit(main())
