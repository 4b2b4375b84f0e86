"""Short runs of a baseline, each a trial's process without Ray, until enough was seen or its time is over."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from autotune.core.trial import Measurement, Outcome, Status
from autotune.storage.records import read_records
from autotune.storage.trial_dir import TrialDir
from autotune.trials.attempt import Attempt
from autotune.trials.fork_server import ForkServer
from autotune.trials.order import Order
from autotune.trials.reported import Report
from autotune.trials.setup import Training

_POLL_S = 0.2
_ENDLESS = 2**31  # samples: it ends when enough was seen
_LINES = 20


@dataclass(frozen=True)
class Run:
    """A run so far: every record and mark of its attempts, and how it ended, None where it was stopped."""

    records: Sequence[Mapping[str, Any]] = ()
    outcome: Outcome | None = None
    measurement: Measurement = field(default_factory=Measurement)
    log: Sequence[str] = ()

    @property
    def has_failed(self) -> bool:
        return self.outcome is not None and self.outcome.status in {Status.FAILED, Status.INTERRUPTED}


@dataclass(frozen=True)
class Runs:
    """What is run: the baseline of a `training`, in directories below `root`, forked from `server`."""

    training: Training
    root: Path
    server: ForkServer

    def order(self, name: str, seed: int) -> Order:
        """The order of a search's first trial; what it leaves behind stays, to be resumed."""
        place = TrialDir(self.root / name)
        order = self.training.order(self.training.space.baseline_config, place, seed=seed)
        return replace(order, keep_work=True)

    def run(self, order: Order, is_enough: Callable[[Report], bool], until_s: float) -> Run:
        """Runs it until `is_enough` says so of a report, or until `until_s` of the monotonic clock."""
        attempt, outcome = Attempt(order, self.server), None
        try:
            while outcome is None and time.monotonic() < until_s:
                report = attempt.step(_POLL_S)
                outcome = report.outcome
                if is_enough(report):
                    break
        finally:
            attempt.stop()
        return Run(tuple(read_records(order.place)), outcome, attempt.measurement(), tail(order.place.log))


def endless(order: Order) -> Order:
    """The same, but that it does not end when it has its samples."""
    return replace(order, samples=_ENDLESS)


def tail(log: Path) -> list[str]:
    """The last lines that were printed."""
    if not log.is_file():
        return []
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return [line for line in lines if line.strip()][-_LINES:]
