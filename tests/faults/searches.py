"""Searches by the real command line in a directory of their own, and what is left of them."""

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import psutil

from autotune.core.trial import Trial
from autotune.storage import study_file
from autotune.storage.records import read_records
from autotune.storage.store import Session
from tests.forked import COMMAND, Forked

HERE = Path(__file__).parent


@dataclass
class Place:
    """Where a search runs, in the session `s`. What is alive of it in the end is killed."""

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
        """Starts the command line; `patch` is run before it, to make a time limit short."""
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
        """Those in the study; none while it is being made."""
        file = self.session / "study.db"
        try:
            return study_file.load_study(file).trials if file.exists() else []
        except KeyError:
            return []

    def records(self, number: int) -> list[dict[str, Any]]:
        return list(read_records(Session(self.session).trial_dir(number)))

    def attempts(self, number: int) -> int:
        return sum("attempt" in r for r in self.records(number))

    def left(self, name: str = "") -> list[psutil.Process]:
        """The living processes that this place's commands have started, with `name` in their command line."""
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
    """What it printed, to its end."""
    return process.communicate(timeout=seconds)


def wait_for(condition: Any, seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.1)
