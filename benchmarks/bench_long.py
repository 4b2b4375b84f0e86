"""Measures a long search as it goes on: memory, descriptors, threads, seconds per trial and suggestion.

    python benchmarks/bench_long.py [--trials 500] [--every 50] [--wandb offline] [--copies-up-to 10000]

A real search under Ray Tune, with a live table and W&B offline, over a workload that takes no time
(instant.py). Prints a line every 50 trials: private memory (USS, MiB), open files and threads of the driver
and of the supervisor, the memory of W&B's service, seconds per trial, milliseconds per suggestion (the mean
of the 50), and the size of the session.

With `--copies-up-to`, the session's trials are then copied, learning rates and figures varied by up to 5%,
until there are so many, and the CPU seconds and the memory (MiB) of the commands that read it are printed.
"""

import argparse
import io
import itertools
import json
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import asdict, replace
from pathlib import Path
from shutil import copytree

import psutil
from rich.console import Console

from autotune.core.trial import Trial, TrialKind
from autotune.display.console import Picture
from autotune.display.snapshot import RUNNING, Snapshot
from autotune.engines import engine
from autotune.searcher.search import Search
from autotune.space import spaces
from autotune.storage import identity, studies, study_file
from autotune.storage.store import Options, StoredSession
from autotune.storage.study_file import SearchPlan
from autotune.system import scratch
from autotune.system.telemetry import hardware
from autotune.trackers import ray_callback
from autotune.trackers import registry as trackers
from autotune.trials.setup import Setup
from autotune.workloads import registry

_SPACE = """
workload: instant:at_once
baseline: {micro_batch_size: 8, accumulation_steps: 1, width: 32, learning_rate: 1.0e-3}
knobs:
  micro_batch_size: {choice: [2, 4, 8, 16, 32, 64]}
  accumulation_steps: {choice: [1, 2, 4]}
  width: {randint: [1, 64]}
  learning_rate: {scale: sqrt, multiplier: {loguniform: [0.5, 2.0]}}
objective: {quality: score, select: pareto}
budget: {samples_per_trial: 192, evaluations_per_trial: 1, repeats: 0}
"""
_HEADING = (
    f"{'trials':>6} {'driver':>7} {'files':>6} {'threads':>8} {'superv.':>8} {'files':>6} {'threads':>8}"
    f" {'wandb':>6} {'s/trial':>8} {'ms/suggestion':>14} {'session':>8}"
)
_MIB = 2**20
_TRIAL = """INSERT INTO trials (trial_id, number, study_id, state)
            SELECT ?, ?, study_id, 'COMPLETE' FROM studies"""
_VALUE = "INSERT INTO trial_user_attributes (trial_id, key, value_json) VALUES (?, ?, ?)"
_READERS = (("status",), ("status", "--json"), ("report",))


class TimedSearch(Search):
    """Measures the time of its suggestions."""

    suggesting_s = 0.0

    def next(self) -> Trial | None:
        begun = time.perf_counter()
        try:
            return super().next()
        finally:
            self.suggesting_s += time.perf_counter() - begun


class Watch(Picture):
    """Draws the live table into a buffer, and prints a line after every so many trials."""

    def __init__(self, begun: Snapshot, every: int, session: Path) -> None:
        nobody = Console(file=io.StringIO(), force_terminal=True, width=120)
        super().__init__(nobody, begun)
        self._nobody, self._every, self._session = nobody, every, session
        self._count, self._before_s, self._suggesting_s = 0, time.monotonic(), 0.0
        self.search: TimedSearch | None = None

    def ended(self, trial: Trial) -> None:
        super().ended(trial)
        self._nobody.file = io.StringIO()
        self._count += 1
        if self._count % self._every == 0 and self.search:
            now_s, spent_s = time.monotonic(), self.search.suggesting_s
            seconds = (now_s - self._before_s) / self._every
            suggesting_ms = 1000 * (spent_s - self._suggesting_s) / self._every
            size = sum(f.lstat().st_size for f in self._session.rglob("*"))
            print(
                f"{self._count:6} {_line(psutil.Process())} {_line(_named('Supervisor'))}"
                f" {_uss(_named('wandb-core')):6.0f} {seconds:8.2f} {suggesting_ms:14.1f} {size / _MIB:8.1f}",
                file=sys.__stdout__,  # the live table has replaced sys.stdout
                flush=True,
            )
            self._before_s, self._suggesting_s = time.monotonic(), spent_s


def _named(name: str) -> psutil.Process | None:
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # the process has just ended
            if name in " ".join(child.cmdline()[:1]):
                return child
    return None


def _line(process: psutil.Process | None) -> str:
    if process is None:
        return f"{'-':>7} {'-':>6} {'-':>8}"
    return f"{_uss(process):7.1f} {process.num_fds():6} {process.num_threads():8}"


def _uss(process: psutil.Process | None) -> float:
    return process.memory_full_info().uss / _MIB if process else 0.0


def run(trials: int, every: int, wandb: str, most: int) -> None:
    """Runs one search and prints its lines, and those of reading it with copies up to `most` trials."""
    space = spaces.complete(spaces.parse(_SPACE, "here"), "here")
    print(_HEADING, flush=True)
    with tempfile.TemporaryDirectory() as directory, scratch.private() as guardian:
        session = StoredSession.create(Path(directory, "s"), space, Options(wandb=wandb), {})
        study = studies.open_study(session.study_file, space)
        plan, machine = SearchPlan(trials, None), hardware()
        studies.set_plan(study, plan)
        begun = Snapshot(session.name, machine.description, RUNNING, space, plan, (), (), (), None, None)
        with Watch(begun, every, session.root) as watch:
            watch.search = search = TimedSearch(space, study, watch)
            setup = Setup(session, space, registry.load(space.workload), machine)
            with trackers.open_session(session) as tracked:
                engine.run(search, setup, guardian, [ray_callback.callback(tracked)])
        studies.close(study)
        if most:
            copy_trials(session, most)
            read(session.root)


def copy_trials(session: StoredSession, most: int) -> None:
    """Copies searched trials, rows and directories, until the session has `most`."""
    varied = random.Random(0)
    originals = [t for t in session.study().trials if t.kind is TrialKind.SEARCHED and t.ended_well]
    begun = len(session.study().entries)
    with closing(sqlite3.connect(session.study_file)) as connection, connection:
        first = connection.execute("SELECT MAX(trial_id) + 1 FROM trials").fetchone()[0]
        for number, trial in zip(range(begun, most), itertools.cycle(originals), strict=False):
            copied = _varied(replace(trial, number=number), varied.uniform(0.95, 1.05))
            values = {
                study_file.CONFIG: copied.config,
                "measurement": asdict(copied.measurement),
                "seconds": copied.seconds,
                "outcome": asdict(copied.outcome) if copied.outcome else None,
            }
            row = first + number - begun
            connection.execute(_TRIAL, (row, number))
            connection.executemany(_VALUE, [(row, key, json.dumps(value)) for key, value in values.items()])
            place = session.trial_dir(number)
            copytree(session.trial_dir(trial.number).root, place.root)
            place.identity_file.unlink()
            identity.write_identity(place, session.identity_of(copied))


def _varied(trial: Trial, by: float) -> Trial:
    """Returns `trial` with its learning rate, speed and quality changed by a factor."""
    rate, measured = trial.config["learning_rate"], trial.measurement
    speed = measured.throughput and replace(
        measured.throughput, samples_per_s=measured.throughput.samples_per_s * by
    )
    varied = replace(measured, throughput=speed, quality=measured.quality and measured.quality * by)
    return replace(trial, config={**trial.config, "learning_rate": float(rate or 0) * by}, measurement=varied)


def read(session: Path) -> None:
    """Prints what each command that reads a session takes."""
    for command in _READERS:
        line = [sys.executable, "-m", "autotune", *command[:1], str(session), *command[1:]]
        with subprocess.Popen(line, stdout=subprocess.DEVNULL) as process:
            _, code, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(code)
        cpu_s, mib = used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
        print(f"{' '.join(command):15} {cpu_s:6.1f} s {mib:7.0f} MiB", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--every", type=int, default=50)
    parser.add_argument("--wandb", choices=("off", "offline"), default="off")
    parser.add_argument("--copies-up-to", type=int, default=0)
    given = parser.parse_args(arguments)
    run(given.trials, given.every, given.wandb, given.copies_up_to)
    return 0


if __name__ == "__main__":
    sys.exit(main())
