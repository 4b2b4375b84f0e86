"""Sessions to damage, and faulty disks: the real command line, real mounts."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from autotune.core.trial import Trial
from autotune.sessions import gpus
from autotune.sessions.gpus import Usable
from autotune.storage import provenance, study_file
from autotune.storage.store import StoredSession
from autotune.system.node_kinds import Cluster, ClusterNode, NodeKind
from autotune.system.telemetry import Hardware, hardware
from autotune.workloads.base import Workload
from tests import forked
from tests.forked import Forked

KEPT = Path(__file__).parents[1] / "fixtures" / "sessions"
SPACE = """
workload: kept_workload:fit
baseline: {micro_batch_size: 4, learning_rate: 1e-3, step_s: 0.002}
knobs: {micro_batch_size: {choice: [4, 8, 16, 32]}, learning_rate: {scale: sqrt}}
objective: {select: pareto}
budget: {trials: 4, samples_per_trial: 400, repeats: 0}
"""  # with the whole front as the objective, no trial is stopped for being slower


def start(directory: Path, *arguments: object, workload: Path = KEPT) -> Forked:
    """Starts the command line in `directory`."""
    return Forked(arguments, directory, _environment(workload))


def _environment(workload: Path) -> dict[str, str]:
    path = os.pathsep.join([str(workload), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path}


def call(directory: Path, *arguments: object, workload: Path = KEPT) -> subprocess.CompletedProcess[str]:
    """Runs the command line in `directory` to its end."""
    return forked.run(arguments, directory, _environment(workload))


def search(directory: Path, *arguments: object, **changes: object) -> tuple[object, ...]:
    """Returns the arguments of a search over SPACE, with `changes`, in the session `s`."""
    space = yaml.safe_load(SPACE)
    for section in (space["baseline"], space["budget"], space["knobs"]["micro_batch_size"]):
        section |= {name: value for name, value in changes.items() if name in section}
    (directory / "space.yaml").write_text(yaml.safe_dump(space))
    return ("search", "--space", "space.yaml", "--session", "s", "--wandb", "off", *arguments)


def kept(name: str, place: Path) -> Path:
    """Copies a kept session to `place`."""
    shutil.copytree(KEPT / name, place, dirs_exist_ok=True)
    return place


def as_if_here(place: Path) -> Path:
    """Makes a session look begun on this machine's CPU with the installed packages."""
    file, machine = place / "session.json", replace(hardware(), gpus=())
    info = json.loads(file.read_text())
    now = provenance.collect("s", StoredSession.open(place).space(), Workload("json:loads"), machine, 0)
    info["provenance"] |= {name: now[name] for name in ("device", "cpus", "driver", "torch")}
    file.write_text(json.dumps(info))
    return place


def trials_of(place: Path) -> list[Trial]:
    """Returns the trials of a session; none while its study is being created."""
    try:
        return study_file.load_study(place / "study.db").trials if (place / "study.db").exists() else []
    except KeyError:
        return []


def wait_for(condition, seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.1)


def is_one_line(done: subprocess.CompletedProcess[str], *parts: str) -> None:
    """Asserts that the command was refused with exit code 2 and one line that has all `parts`."""
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("autotune: ")
    for part in parts:
        assert part in done.stderr


def run_no_trials(monkeypatch: pytest.MonkeyPatch, machine: Hardware, instead_of: str = "run") -> None:
    """Makes searches end at this function of `sessions.run`, on `machine`."""
    monkeypatch.setattr(f"autotune.sessions.run.{instead_of}", lambda *_, **__: 0)
    one = Cluster(NodeKind(), (ClusterNode("", "", gpus=len(machine.gpus)),))

    def usable(_: object, asked: float | None, *__: object, **___: object) -> Usable:
        return replace(gpus.of_cluster(machine, asked, one), cluster=None)

    monkeypatch.setattr("autotune.sessions.start.hardware", usable)


def mount(*arguments: object) -> None:
    """Mounts, or skips the test if that is not allowed."""
    done = subprocess.run(["mount", *map(str, arguments)], check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"may not mount a file system: {done.stderr.strip()}")


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[Path]:
    """Mounts a file system of that size at `place`."""
    with mounted(place, f"size={size}"):
        yield place


@contextmanager
def mounted(place: Path, limit: str) -> Iterator[Path]:
    """Mounts a file system in memory at `place`; `limit` is an option of `mount`."""
    place.mkdir(exist_ok=True)
    mount("-t", "tmpfs", "-o", limit, "test", place)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


@contextmanager
def read_only(place: Path) -> Iterator[Path]:
    """Remounts `place` read-only."""
    mount("--bind", place, place)
    try:
        mount("-o", "remount,bind,ro", place)
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def fill(place: Path, leave_bytes: int = 0) -> Path:
    """Fills the disk at `place` up to `leave_bytes`."""
    ballast, free = place / "ballast", shutil.disk_usage(place).free
    # Another writer may be quicker: the disk is full anyway.
    with suppress(OSError), ballast.open("wb") as file:
        file.write(bytes(free - leave_bytes))
    return ballast
