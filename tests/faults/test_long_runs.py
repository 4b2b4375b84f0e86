"""A search of many trials costs at its end what it cost at its beginning."""

import itertools
import statistics
import time
from typing import NamedTuple

import psutil
import pytest

from tests.endings import ENDED

from .searches import Place, end

SPACE = """
workload: trivial:brief
baseline: {micro_batch_size: 4, width: 8, learning_rate: 1e-3}
knobs:
  micro_batch_size: {choice: [4, 8, 16, 32, 64]}
  width: {randint: [1, 64]}
  learning_rate: {scale: sqrt, multiplier: {loguniform: [0.5, 2.0]}}
objective: {select: pareto}
budget: {samples_per_trial: 32, repeats: 0}
"""
WINDOW = 10  # trials that are looked at in the beginning, and in the end
MOST_GROWTH_BYTES = 50 * 2**20


class Use(NamedTuple):
    """What a process holds; memory is what it shares with nobody."""

    memory_bytes: int
    files: int
    threads: int


def use(process: psutil.Process) -> Use:
    return Use(process.memory_full_info().uss, process.num_fds(), process.num_threads())


@pytest.fixture
def place(tmp_path):
    with Place(tmp_path) as here:
        yield here


@pytest.mark.timeout(1800)
def test_neither_memory_nor_files_nor_threads_nor_time_grow_with_the_trials(place, soak):
    trials, warm_up = (500, 50) if soak else (70, 15)
    process = place.search(SPACE, "--trials", trials, "--wandb", "offline")
    driver, seen, ended_s = psutil.Process(process.pid), [], []
    for line in process.stdout:
        if " completed: " in line:
            ended_s.append(time.monotonic())
            if warm_up < len(ended_s) <= warm_up + WINDOW or trials - WINDOW <= len(ended_s) < trials:
                [supervisor] = place.left("ray::Supervisor")
                [service] = place.left("wandb-core")
                seen.append([use(driver), use(supervisor), use(service)])
    _, errors = end(process)
    assert errors == ""
    assert process.returncode in ENDED
    assert len(ended_s) == trials

    for before, after in zip(zip(*seen[:WINDOW], strict=True), zip(*seen[WINDOW:], strict=True), strict=True):
        assert min(u.memory_bytes for u in after) - min(u.memory_bytes for u in before) < MOST_GROWTH_BYTES
        assert min(u.files for u in after) <= max(u.files for u in before)
        assert min(u.threads for u in after) <= max(u.threads for u in before)
    gaps = [after - before for before, after in itertools.pairwise(ended_s)]
    early, late = statistics.median(gaps[warm_up : warm_up + WINDOW]), statistics.median(gaps[-WINDOW:])
    assert late < 2 * early + 0.5
