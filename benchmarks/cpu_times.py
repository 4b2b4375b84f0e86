"""Adds step times in CPU seconds to a table, for a machine that others use as well.

    python benchmarks/cpu_times.py TABLE [--seconds 5] [--data DIR]

Only for single-threaded workloads: every configuration with a different speed is run in this process, on one
thread, and a step takes the CPU time between two records. On an idle machine, use `python -m lab record TABLE
--only timed` instead, after removing the lines with `"timed": true`.
"""

import argparse
import importlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import torch

from autotune.core.trial import Outcome, Status
from autotune.workloads import registry
from lab.replay import recording, table
from lab.replay.table import Run, Table

_WARM_UP = 3  # steps


def steps(records: Iterator[Mapping[str, Any]], quality: str, seconds: float) -> list[tuple[int, float]]:
    """Returns samples and CPU seconds of each step, evaluations excluded, for `seconds` of a workload."""
    begun, seen = process_time(), []
    for record in records:
        seen.append((record["samples"], process_time(), quality in record))
        if process_time() - begun > seconds and len(seen) > 2 * _WARM_UP:
            break
    differences = [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(seen[_WARM_UP:]) if not b[2]]
    return [step for step in differences if step[0]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs and adds the missing timings."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", type=Path)
    parser.add_argument("--seconds", type=float, default=5.0, help="of CPU time for each configuration")
    parser.add_argument("--data", help="data set, where the workload needs one")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    known = Table.read(given.table)
    space = known.space
    module, _, function = registry.load(space.workload).entry_point.partition(":")
    fit = getattr(importlib.import_module(module), function)
    for planned in recording.missing(known, seeds=1, timings=1, part="timed"):
        settings = space.settings(planned.config) | ({"data": given.data} if given.data else {})
        with TemporaryDirectory() as workdir:
            records = fit(settings, Path(workdir))
            timed = steps(records, space.objective.quality, given.seconds)
            records.close()
        samples, times = zip(*timed, strict=True)
        rounded = tuple(float(f"{s:.4g}") for s in times)
        run = Run(planned.config, planned.seed, Outcome(Status.COMPLETED), True, 0.0, samples, rounded)
        table.append(given.table, run)
        known.add(run)
        print(f"{dict(planned.config)}: {sum(samples) / sum(times):.1f} samples/s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
