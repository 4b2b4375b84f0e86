"""Replays whole searches over recorded tables: how soon and how reliably each strategy is right.

    python benchmarks/bench_search.py [--seeds 50] [--trials 40] [TABLE ...]

Columns, as medians over the seeds in simulated device time: until the recommendation is, and stays, within 5%
of the best that keeps the quality, as closer ones are indistinguishable in a race; until such a winner is
confirmed, in this project's way for all strategies; trials until the first; the whole search. Then
out-of-memory failures (mean), time in trials of settings that could not win, wrong winners (not within 5%, or
without the quality), and the winners' distance from the best (mean). A/A: searches in which every
configuration runs as the baseline, and how many of them claim a gain.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from autotune.space import configurations
from lab.replay import scoring
from lab.replay.scoring import Truth
from lab.replay.table import Table

_TABLES = Path(__file__).parent / "tables"


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the comparison for every table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="*", type=Path)
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--aa", type=int, default=200, help="A/A searches; 0: none")
    parser.add_argument("--only", choices=list(scoring.STRATEGIES), action="append")
    given = parser.parse_args(arguments)
    for file in given.tables or sorted(set(_TABLES.glob("*.jsonl")) - set(_TABLES.glob("final-*"))):
        table = Table.read(file)
        count = len(configurations.allowed(table.space) or [])
        print(
            f"{file.stem}: {count} configurations, {given.trials} trials, "
            f"{given.seeds} seeds; best {Truth(table).best:.1f} samples/s, "
            f"baseline {Truth(table).speed(table.space.baseline_config):.1f}"
        )
        print(f"  {scoring.HEADING}")
        for name in given.only or scoring.STRATEGIES:
            scores = scoring.scores(file, name, given.seeds, given.trials)
            print(f"  {scoring.line(name, scores)}", flush=True)
        if given.aa:
            claims = scoring.false_claims(file, given.aa, given.trials)
            print(f"  A/A: {claims} of {given.aa} searches claim a gain", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
