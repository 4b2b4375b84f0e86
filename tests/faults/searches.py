"""Runs searches by the real command line in their own directory, and finds their leftovers."""

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import psutil

from autotune.core.trial import Trial
from autotune.storage import study_file
from autotune.storage.records import read_records
from autotune.storage.store import StoredSession
from tests.forked import COMMAND, Forked

HERE = Path(__file__).parent
SLOW = """
workload: trivial:slow
baseline: {hang: none, learning_rate: 1e-3, step_s: 0.04}
knobs: {learning_rate: {loguniform: [1e-4, 1e-2]}}
objective: {select: pareto}
budget: {trials: 3, samples_per_trial: 400, repeats: 0}
"""


@dataclass
class Place:
    """A directory in which a search runs as session `s`. Its remaining processes are killed at the end."""

    directory: Path
    started: list[Forked] = field(default_factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in [*self.started, *self.left()]:
            process.kill()
        for process in self.started:
            process.wait()

    @property
    def session(self) -> Path:
        return self.directory / "s"

    def start(self, *arguments: object, patch: str = "", **environment: str) -> Forked:
        """Starts the command line after running `patch`, which can shorten a time limit."""
        path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
        mark = {"PYTHONPATH": path, "TEST_PLACE": str(self.directory)}
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("WANDB_")}
        script = f"{patch}\n{COMMAND}"
        self.started.append(Forked(arguments, self.directory, inherited | mark | environment, script=script))
        return self.started[-1]

    def search(self, space: str, *arguments: object, patch: str = "", **environment: str) -> Forked:
        (self.directory / "space.yaml").write_text(space)
        named = ("search", "--space", "space.yaml", "--session", "s", *arguments)
        return self.start(*named, patch=patch, **environment)

    def trials(self) -> list[Trial]:
        """Returns the trials in the study; none while it is being created."""
        file = self.session / "study.db"
        try:
            return study_file.load_study(file).trials if file.exists() else []
        except KeyError:
            return []

    def records(self, number: int) -> list[dict[str, Any]]:
        return list(read_records(StoredSession(self.session).trial_dir(number)))

    def attempts(self, number: int) -> int:
        return sum("attempt" in r for r in self.records(number))

    def left(self, name: str = "") -> list[psutil.Process]:
        """Returns the live processes started from here, with `name` in their command line."""
        return [p for p in psutil.process_iter() if _is_alive(p, str(self.directory), name)]


def driver(process: Forked) -> psutil.Process:
    """The process that runs the search, the only child of the command."""
    (found,) = psutil.Process(process.pid).children()
    return found


def _is_alive(process: psutil.Process, directory: str, name: str) -> bool:
    try:
        return (
            process.status() != psutil.STATUS_ZOMBIE
            and process.environ().get("TEST_PLACE") == directory
            and name in " ".join(process.cmdline())
        )
    except psutil.Error:
        return False


def end(process: Forked, seconds: float = 240) -> tuple[str, str]:
    """Waits for its end, and returns its stdout and stderr."""
    return process.communicate(timeout=seconds)


def wait_for(condition: Any, seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.1)
