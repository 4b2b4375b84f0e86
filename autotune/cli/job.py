"""A session to run: `cli_start` opens it, `cli_run` runs it."""

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
    """A `session` whose lock is `held`, and which the user calls `shown`; `notes` are to be said first.

    Its plan gets `more` trials, and `time_s` from now on; None leaves it what it has.
    """

    session: Session
    shown: Path
    space: Space
    workload: Workload
    hardware: Hardware
    held: Held
    notes: Sequence[str]
    more: int = 0
    time_s: float | None = None
    as_json: bool = False
