"""A session to run, and the process that runs it."""

import signal
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from autotune.core.errors import AutotuneError
from autotune.space.space import Space
from autotune.storage.lock import Held
from autotune.storage.store import StoredSession, resume_command
from autotune.system.telemetry import Hardware
from autotune.workloads.base import Workload


class RayDied(AutotuneError):  # noqa: N818 - it is an ending: the search continues in a new process
    """Ray has died, and the process that used it has to end."""


def _throw(error: BaseException) -> NoReturn:
    raise error


@dataclass(frozen=True)
class Job:
    """A session to run, with the resources that it needs."""

    session: StoredSession
    shown: Path  # as the user names it
    space: Space
    workload: Workload
    hardware: Hardware
    held: Held  # its lock
    notes: Sequence[str]  # printed first
    more: int = 0  # trials to add to the plan
    time_s: float | None = None  # new time limit, from now on; None: as planned
    as_json: bool = False
    interrupts: Collection[int] = (signal.SIGINT, signal.SIGTERM)  # signals that end the search gracefully
    give_up: Callable[[BaseException], NoReturn] = _throw  # called by any thread, if the others may hang

    @property
    def how_to_go_on(self) -> str:
        return f"nothing is lost; continue with: {resume_command(self.shown)}"
