"""A session to run, opened by `start` for `run`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from autotune.space.space import Space
from autotune.storage.lock import Held
from autotune.storage.store import Session
from autotune.system.telemetry import Hardware
from autotune.workloads.base import Workload


@dataclass(frozen=True)
class Job:
    """A session to run, with the resources that it needs."""

    session: Session
    shown: Path  # as the user names it
    space: Space
    workload: Workload
    hardware: Hardware
    held: Held  # its lock
    notes: Sequence[str]  # printed first
    more: int = 0  # further trials
    time_s: float | None = None  # new time limit, from now on; None: as planned
    as_json: bool = False
