"""A trial late in a long search costs no more than an early one."""

import time
from typing import NamedTuple

import psutil
import pytest

from tests.endings import ENDED

from .searches import Place, driver, end

pytestmark = pytest.mark.slow

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
WINDOW = 10  # trials compared at the beginning and at the end
MOST_GROWTH_BYTES = 50 * 2**20
MOST_MORE = 5  # files and threads, which fluctuate; a leak adds at least one per trial


class Use(NamedTuple):
    """The resources that a process holds and has used; memory is its unshared part."""

    memory_bytes: int
    files: int
    threads: int
    cpu_s: float


def use(process: psutil.Process) -> Use:
    memory_bytes, times = process.memory_full_info().uss, process.cpu_times()
    return Use(memory_bytes, process.num_fds(), process.num_threads(), times.user + times.system)


@pytest.fixture
def place(tmp_path):
    with Place(tmp_path) as here:
        yield here


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_neither_memory_nor_files_nor_threads_nor_time_grow_with_the_trials(place, soak):
    """Time is the driver's CPU time: a trial's duration depends on other load."""
    trials, warm_up = (500, 50) if soak else (36, 8)
    process = place.search(SPACE, "--trials", trials, "--wandb", "offline")
    early, late, ended = {}, {}, 0
    while process.poll() is None:
        known, ended = ended, process.said().count(" completed: ")
        window = early if warm_up < ended <= warm_up + WINDOW else late if ended >= trials - WINDOW else None
        if known < ended < trials and window is not None:
            [supervisor] = place.left("ray::Supervisor")
            [service] = place.left("wandb-core")
            window[ended] = [use(driver(process)), use(supervisor), use(service)]
        time.sleep(0.02)
    _, errors = end(process)
    assert errors == ""
    assert process.returncode in ENDED
    assert process.said().count(" completed: ") == trials

    for before, after in zip(of_each(early), of_each(late), strict=True):
        assert min(u.memory_bytes for u in after) - min(u.memory_bytes for u in before) < MOST_GROWTH_BYTES
        assert min(u.files for u in after) <= max(u.files for u in before) + MOST_MORE
        assert min(u.threads for u in after) <= max(u.threads for u in before) + MOST_MORE
    assert of_a_trial(late) < 4 * of_a_trial(early) + 0.3  # a slower trial is polled more often


def of_each(window):
    """Returns the figures of each process over the trials."""
    return zip(*window.values(), strict=True)


def of_a_trial(window):
    """Returns the driver's CPU seconds per trial."""
    (first, (begun, *_)), *_, (last, (ended, *_)) = sorted(window.items())
    return (ended.cpu_s - begun.cpu_s) / (last - first)
