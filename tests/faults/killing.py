"""Searches by the real command line, and the processes that they consist of."""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from autotune.storage import study_file
from autotune.system import cgroup
from tests.forked import Forked
from tests.waiting import alive

HERE = Path(__file__).parent
SPACE = """
workload: family_workload:fit
baseline: {micro_batch_size: 4, learning_rate: 1e-3, step_s: 0.02}
knobs:
  micro_batch_size: {choice: [4, 8, 16]}
  learning_rate: {scale: sqrt, multiplier: {loguniform: [0.5, 2.0]}}
objective: {select: pareto}
budget: {trials: 5, samples_per_trial: 400, repeats: 0}
"""  # with the whole front as the objective, no trial is stopped for being slower
SEARCH = ("search", "--space", "space.yaml", "--session", "s", "--wandb", "off")


def begin(directory: Path, *arguments: object, **environment: str) -> Forked:
    """Starts the command line as a shell does, as the leader of its own process group."""
    path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    known = {**os.environ, "PYTHONPATH": path, "WANDB_MODE": "offline", **environment}
    (directory / "output").touch()
    return Forked(arguments, directory, known, output=directory / "output", leads=True)


@contextmanager
def temporary() -> Iterator[Path]:
    """Yields a short path for temporary directories; fails if anything is left in it.

    New control groups and named shared memory must not be left either.
    """
    before = _elsewhere()
    with tempfile.TemporaryDirectory(prefix="k-") as directory:
        yield Path(directory)
        assert _what_stays_in(Path(directory)) == []
    left = _elsewhere() - before  # other searches' leftovers disappear too
    wait_for(lambda: not left & _elsewhere(), 60, "the end of shared memory and control groups")


def _what_stays_in(directory: Path) -> list[Path]:
    """Returns the files still there after the time allowed for their removal."""
    deadline = time.monotonic() + 60
    while (left := list(directory.iterdir())) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


def _elsewhere() -> set[Path]:
    """Returns control groups whose creator has ended, and named shared memory that no process has mapped."""
    place = cgroup.group_for_trials()
    groups = set(place.glob("autotune-*")) if place else set()
    left = {group for group in groups if not Path("/proc", group.name.split("-")[1]).exists()}
    return left | set(Path("/dev/shm").glob("psm_*")) - _mapped()


def _mapped() -> set[Path]:
    """Returns the shared-memory files that some process has mapped."""
    found = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):  # it has ended
            found |= {Path(line.split()[5]) for line in maps.read_text().splitlines() if "/dev/shm/" in line}
    return found


def output(directory: Path) -> str:
    return (directory / "output").read_text()


def trials_of(directory: Path) -> list:
    """Returns the trials in the session's study; none while it is being created."""
    try:
        return study_file.load_study(directory / "s" / "study.db").trials
    except KeyError:
        return []


def wait_for(condition, seconds=240.0, what="it"):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come to pass in {seconds:g} s"
        time.sleep(0.1)


def family(process: Forked) -> list[psutil.Process]:
    """Returns all processes of a search except its driver."""
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def children(process: Forked) -> list[psutil.Process]:
    """Returns the processes that a search's first one has started: the driver and its guardian."""
    try:
        return psutil.Process(process.pid).children()
    except psutil.NoSuchProcess:
        return []


def kinds(processes) -> dict[str, list[psutil.Process]]:
    """Returns the processes by their role in a search, without those that have none."""
    found: dict[str, list[psutil.Process]] = {}
    for process in processes:
        try:
            if (kind := _kind(process)) is not None:
                found.setdefault(kind, []).append(process)
        except psutil.Error:  # it has ended
            continue
    return found


def _kind(process: psutil.Process) -> str | None:
    command = " ".join(process.cmdline())
    names = {
        "raylet/raylet": "raylet",
        "gcs_server": "GCS server",
        "guardian.py": "guardian",
        "ray::Supervisor": "supervisor",
    }
    for part, kind in names.items():
        if part in command.partition(" --")[0]:
            return kind
    if "multiprocessing.forkserver" not in command:
        return None
    above = process.parents()
    depth = sum("multiprocessing.forkserver" in " ".join(p.cmdline()) for p in above)
    return ("fork server", "child", "loader worker")[depth] if depth < 3 else None


def end(process: Forked) -> None:
    """Ends all processes that a test has started."""
    if process.poll() is None:
        left = family(process)
        process.kill()
        process.wait()
        wait_for(lambda: not alive(left), 30, "the end of everything")
