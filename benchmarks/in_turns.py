"""A script by itself, and as the trial of a search: in turns, while the other one is suspended.

The search is a real one, with its live picture and W&B offline, and its only trial is `own_pace.py`.
"""

import itertools
import math
import os
import pty
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil

from autotune.judging.measure import half_interval

SCRIPT = Path(__file__).with_name("own_pace.py")
SPACE = """
workload:
  kind: command
  run: {python} {script} {ledger} --batch {{batch}}
  quality: {{val_loss: 'val_loss: ([0-9.]+)'}}
roles: {{micro_batch_size: batch}}
baseline: {{batch: {batch}}}
knobs: {{batch: {{choice: [{batch}, {twice}]}}}}
objective: {{minimize: val_loss}}
budget: {{trials: 1, samples_per_trial: 100000000, evaluations_per_trial: 1000, repeats: 0}}
"""
PROCESSES = {
    str(SCRIPT): "the script",
    "autotune search": "driver",
    "ray::": "supervisor",
    "wandb-core": "W&B's service",
    "gcs_server": "Ray's GCS server",
    "raylet": "raylet",
    "forkserver": "runner",
}
START_S, WARM_UP_S, PATIENCE_S = 120.0, 10.0, 900.0
TURN_S, CATCH_UP_S = 2.0, 0.3


class Spent(NamedTuple):
    """CPU seconds of a process, and how often its threads have waited: each time, they were woken up."""

    cpu_s: float
    waits: int


class Side:
    """A process with all that it has started; a script below it keeps a ledger."""

    def __init__(self, process: psutil.Process, ledger: Path) -> None:
        self.process, self.ledger = process, ledger

    def family(self) -> list[psutil.Process]:
        return [self.process, *self.process.children(recursive=True)]

    def signal(self, number: signal.Signals) -> None:
        for one in self.family():
            with suppress(psutil.Error):
                one.send_signal(number)

    def spent(self) -> dict[psutil.Process, Spent]:
        found = {}
        for one in self.family():
            with suppress(psutil.Error, OSError):
                found[one] = Spent(sum(one.cpu_times()[:2]), waits(one.pid))
        return found

    def has_begun(self) -> bool:
        return self.ledger.exists() and bool(np.memmap(self.ledger, dtype=np.float64, mode="r")[:1].any())

    def steps_per_s(self, begun_s: float, ended_s: float) -> float:
        stamps = np.memmap(self.ledger, dtype=np.float64, mode="r")
        within = stamps[(stamps >= begun_s) & (stamps <= ended_s)]
        return float((len(within) - 1) / (within[-1] - within[0]))


def waits(pid: int) -> int:
    threads = (thread / "status" for thread in Path(f"/proc/{pid}/task").iterdir())
    lines = (line for status in threads for line in status.read_text().splitlines())
    return sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))


def name(process: psutil.Process) -> str:
    known = f"{process.name()} {' '.join(process.cmdline())[:300]}"
    return next((said for part, said in PROCESSES.items() if part in known), "all others")


@contextmanager
def started(command: list[str], ledger: Path, terminal: int) -> Iterator[Side]:
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
    process = psutil.Popen(
        [sys.executable, *command],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
        env=environment,
    )
    side = Side(process, ledger)
    try:
        yield side
    finally:
        family = side.family()
        for one in family:
            with suppress(psutil.Error):
                one.kill()
        psutil.wait_procs(family, 10)


@contextmanager
def both(batch: int) -> Iterator[tuple[Side, Side]]:
    """The script by itself, and a search whose trial has been training for a while; both are suspended."""
    with tempfile.TemporaryDirectory() as place:
        own, its, space = (Path(place, name) for name in ("own", "its", "space.yaml"))
        values = {"python": sys.executable, "script": SCRIPT, "ledger": its}
        space.write_text(SPACE.format(**values, batch=batch, twice=2 * batch))
        script = [str(SCRIPT), str(own), "--batch", str(batch)]
        search = ["-m", "autotune", "search", "--space", str(space), "--session", f"{place}/session"]
        ours, terminal = pty.openpty()
        threading.Thread(target=drain, args=(ours,), daemon=True).start()
        with started(script, own, terminal) as alone:
            suspend_warm(alone)
            with started([*search, "--wandb", "offline"], its, terminal) as trial:
                os.close(terminal)
                suspend_warm(trial)
                yield alone, trial


def drain(terminal: int) -> None:
    """Takes what is drawn, as a terminal does."""
    with suppress(OSError):  # nobody draws any more
        while os.read(terminal, 2**16):
            pass
    os.close(terminal)


def suspend_warm(side: Side) -> None:
    """Suspends it once its script has trained for a while."""
    deadline_s = time.monotonic() + START_S
    while not side.has_begun():
        if time.monotonic() > deadline_s:
            raise SystemExit("the script has not begun to train")
        time.sleep(0.2)
    time.sleep(WARM_UP_S)
    side.signal(signal.SIGSTOP)


def busy_s() -> float:
    """CPU seconds that all processes of the machine have taken."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + times.irq + times.softirq + times.steal)


class Turn(NamedTuple):
    """Steps per second, and seconds of the turn, in which others kept so many cores busy."""

    steps_per_s: float
    seconds: float
    others: float
    spent: Mapping[psutil.Process, Spent]


def turn(side: Side) -> Turn:
    side.signal(signal.SIGCONT)
    time.sleep(CATCH_UP_S)
    before, begun_s, all_s = side.spent(), time.monotonic(), busy_s()
    time.sleep(TURN_S - CATCH_UP_S)
    now, ended_s, all_s = side.spent(), time.monotonic(), busy_s() - all_s
    side.signal(signal.SIGSTOP)
    both = {one: (before[one], spent) for one, spent in now.items() if one in before}
    spent = {one: Spent(b.cpu_s - a.cpu_s, b.waits - a.waits) for one, (a, b) in both.items()}
    seconds = ended_s - begun_s
    others = (all_s - sum(one.cpu_s for one in spent.values())) / seconds
    return Turn(side.steps_per_s(begun_s, ended_s), seconds, others, spent)


def await_quiet(busy_cores: float, deadline_s: float) -> bool:
    """Whether others have come to keep fewer cores busy than that for a second, within a time."""
    while time.monotonic() < deadline_s:
        before_s = busy_s()
        time.sleep(1.0)
        if busy_s() - before_s < busy_cores:
            return True
    return False


def compare(batch: int, pairs: int, turns: int, busy_cores: float) -> None:
    """Prints the speed of the trial as a share of the script's own, and what the search's processes take."""
    table: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    shares, others, trained_s = [], [], 0.0
    for number in range(pairs):
        with both(batch) as (alone, trial):
            found: list[tuple[Turn, Turn]] = []
            deadline_s = time.monotonic() + PATIENCE_S
            while len(found) < turns and await_quiet(busy_cores, deadline_s):
                order = (alone, trial) if len(found) % 2 else (trial, alone)
                taken = {side: turn(side) for side in order}
                if max(one.others for one in taken.values()) < busy_cores:
                    found.append((taken[alone], taken[trial]))
            for one, spent in ((one, spent) for _, its in found for one, spent in its.spent.items()):
                with suppress(psutil.Error):
                    row = table[name(one)]
                    row[0], row[1] = row[0] + spent.cpu_s, row[1] + spent.waits
        if not found:
            print("the machine is never quiet enough")
            continue
        trained_s += sum(its.seconds for _, its in found)
        others += [one.others for one in itertools.chain(*found)]
        own_ms, its_ms = (
            1000 * statistics.fmean(1 / one.steps_per_s for one in side) for side in zip(*found, strict=True)
        )
        shares.append(math.log(own_ms / its_ms))
        print(
            f"{number}: {own_ms:.2f} ms a step by itself, {its_ms:.2f} as a trial, {len(found)} turns; "
            f"others kept {statistics.fmean(others):.2f} cores busy",
            flush=True,
        )
    if len(shares) > 1:
        mean, half = statistics.fmean(shares), half_interval(shares)
        low, high = math.exp(mean - half), math.exp(mean + half)
        print(f"\nThe trial has {math.exp(mean):.3f} ({low:.3f} to {high:.3f}) of the script's own speed.")
    print("\n| process | of a core | waits per second |\n| --- | --- | --- |")
    for said, (cpu_s, waited) in sorted(table.items(), key=lambda row: -row[1][0]):
        print(f"| {said} | {cpu_s / trained_s:.2%} | {waited / trained_s:.0f} |")
