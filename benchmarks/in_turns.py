"""Alternates a script between being the trial of a search and running alone, in one process.

The search is real, with its live picture and W&B offline, and its only trial is `own_pace.py`. For the turns
alone, every process of the search but the script's is suspended, and the hook is removed from the script. Two
processes of the same script would not be comparable: they differ by up to 17%, which no pairing removes.
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
import own_pace
import psutil

from autotune.judging.measurement.estimates import half_interval

SCRIPT = Path(own_pace.__file__)
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
    str(SCRIPT): own_pace.NAME,
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
    """CPU seconds of a process, and how often its threads have waited and been woken."""

    cpu_s: float
    waits: int


class Search:
    """A search with all its processes; the script in it keeps a ledger."""

    def __init__(self, process: psutil.Process, ledger: Path) -> None:
        self.process, self._ledger = process, ledger

    def family(self) -> list[psutil.Process]:
        return [self.process, *self.process.children(recursive=True)]

    def watch(self, *, watches: bool) -> None:
        """Resumes the whole search, or suspends all but the script and removes the hook."""
        np.memmap(self._ledger, dtype=np.float64, mode="r+")[own_pace.SWITCH] = 0.0 if watches else 1.0
        for one in self.family():
            with suppress(psutil.Error):
                if name(one) != own_pace.NAME:
                    one.send_signal(signal.SIGCONT if watches else signal.SIGSTOP)

    def spent(self) -> dict[psutil.Process, Spent]:
        usage = {}
        for one in self.family():
            with suppress(psutil.Error, OSError):
                usage[one] = Spent(sum(one.cpu_times()[:2]), waits(one.pid))
        return usage

    def has_begun(self) -> bool:
        return self._ledger.exists() and bool(np.memmap(self._ledger, dtype=np.float64, mode="r")[:1].any())

    def step_ms(self, begun_s: float, ended_s: float) -> float:
        stamps = np.memmap(self._ledger, dtype=np.float64, mode="r")[: own_pace.SWITCH]
        within = stamps[(stamps >= begun_s) & (stamps <= ended_s)]
        return float(1000 * (within[-1] - within[0]) / (len(within) - 1))


def waits(pid: int) -> int:
    threads = (thread / "status" for thread in Path(f"/proc/{pid}/task").iterdir())
    lines = (line for status in threads for line in status.read_text().splitlines())
    return sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))


def name(process: psutil.Process) -> str:
    known = f"{process.name()} {' '.join(process.cmdline())[:300]}"
    return next((said for part, said in PROCESSES.items() if part in known), "all others")


@contextmanager
def start_search(batch: int) -> Iterator[Search]:
    """Starts a search and waits until its trial has trained for a while."""
    with tempfile.TemporaryDirectory() as place:
        ledger, space = Path(place, "ledger"), Path(place, "space.yaml")
        values = {"python": sys.executable, "script": SCRIPT, "ledger": ledger}
        space.write_text(SPACE.format(**values, batch=batch, twice=2 * batch))
        command = ["-m", "autotune", "search", "--space", str(space), "--session", f"{place}/session"]
        ours, terminal = pty.openpty()
        threading.Thread(target=drain, args=(ours,), daemon=True).start()
        process = psutil.Popen(
            [sys.executable, *command, "--wandb", "offline"],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"},
        )
        os.close(terminal)
        search = Search(process, ledger)
        try:
            await_warm(search)
            yield search
        finally:
            family = search.family()
            for one in family:
                with suppress(psutil.Error):
                    one.kill()
            psutil.wait_procs(family, 10)


def drain(terminal: int) -> None:
    """Reads and drops terminal output."""
    with suppress(OSError):  # the writer has closed it
        while os.read(terminal, 2**16):
            pass
    os.close(terminal)


def await_warm(search: Search) -> None:
    """Waits until the script has trained for a while."""
    deadline_s = time.monotonic() + START_S
    while not search.has_begun():
        if time.monotonic() > deadline_s:
            raise SystemExit("the script has not begun to train")
        time.sleep(0.2)
    time.sleep(WARM_UP_S)


def busy_s() -> float:
    """Returns the CPU seconds used by all processes of the machine."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + times.irq + times.softirq + times.steal)


class Turn(NamedTuple):
    """Milliseconds per step, the turn's seconds, and the cores that others kept busy."""

    step_ms: float
    seconds: float
    others: float
    spent: Mapping[psutil.Process, Spent]


def turn(search: Search, *, watches: bool) -> Turn:
    search.watch(watches=watches)
    time.sleep(CATCH_UP_S)
    before, begun_s, all_s = search.spent(), time.monotonic(), busy_s()
    time.sleep(TURN_S - CATCH_UP_S)
    now, ended_s, all_s = search.spent(), time.monotonic(), busy_s() - all_s
    both = {one: (before[one], spent) for one, spent in now.items() if one in before}
    spent = {one: Spent(b.cpu_s - a.cpu_s, b.waits - a.waits) for one, (a, b) in both.items()}
    seconds = ended_s - begun_s
    others = (all_s - sum(one.cpu_s for one in spent.values())) / seconds
    return Turn(search.step_ms(begun_s, ended_s), seconds, others, spent)


def await_quiet(search: Search, busy_cores: float, deadline_s: float) -> bool:
    """Waits until others use fewer cores than that for a second; false at the deadline."""
    while time.monotonic() < deadline_s:
        before, all_s = search.spent(), busy_s()
        time.sleep(1.0)
        own_s = sum(now.cpu_s - before[one].cpu_s for one, now in search.spent().items() if one in before)
        if busy_s() - all_s - own_s < busy_cores:
            return True
    return False


def compare(batch: int, starts: int, turns: int, busy_cores: float) -> None:
    """Prints the trial's speed relative to the script alone, and the use of CPU by the search's processes."""
    table: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    shares, trained_s = [], 0.0
    for number in range(starts):
        with start_search(batch) as search:
            found: list[tuple[Turn, Turn]] = []
            deadline_s = time.monotonic() + PATIENCE_S
            while len(found) < turns and await_quiet(search, busy_cores, deadline_s):
                order = (True, False) if len(found) % 2 else (False, True)
                taken = {watches: turn(search, watches=watches) for watches in order}
                search.watch(watches=True)
                if max(one.others for one in taken.values()) < busy_cores:
                    found.append((taken[False], taken[True]))
            for one, spent in ((one, spent) for _, its in found for one, spent in its.spent.items()):
                with suppress(psutil.Error):
                    row = table[name(one)]
                    row[0], row[1] = row[0] + spent.cpu_s, row[1] + spent.waits
        if not found:
            print("the machine is never quiet enough")
            continue
        trained_s += sum(its.seconds for _, its in found)
        own_ms, its_ms = (statistics.fmean(one.step_ms for one in side) for side in zip(*found, strict=True))
        shares += [math.log(own.step_ms / its.step_ms) for own, its in found]
        others = statistics.fmean(one.others for one in itertools.chain(*found))
        print(
            f"{number}: {own_ms:.2f} ms a step by itself, {its_ms:.2f} as a trial, {len(found)} turns each; "
            f"others kept {others:.2f} cores busy",
            flush=True,
        )
    if len(shares) > 1:
        mean, half = statistics.fmean(shares), half_interval(shares)
        low, high = math.exp(mean - half), math.exp(mean + half)
        print(f"\nThe trial has {math.exp(mean):.3f} ({low:.3f} to {high:.3f}) of the script's own speed.")
    print("\n| process | of a core | waits per second |\n| --- | --- | --- |")
    for said, (cpu_s, waited) in sorted(table.items(), key=lambda row: -row[1][0]):
        print(f"| {said} | {cpu_s / trained_s:.2%} | {waited / trained_s:.0f} |")
