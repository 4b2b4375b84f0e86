"""Runs a baseline briefly, without Ray, until enough has been seen or the time is over."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from autotune.core.measurement import Measurement
from autotune.core.trial import Outcome, Status
from autotune.storage.records import read_records
from autotune.storage.trial_dir import TrialDir
from autotune.trials.attempt import Attempt
from autotune.trials.fork_server import ForkServer
from autotune.trials.order import Ends, Order
from autotune.trials.report import TrialReport
from autotune.trials.setup import TrainingSetup

_POLL_S = 0.2
_LINES = 20


@dataclass(frozen=True)
class Run:
    """The records and marks of a run's attempts, and its outcome, which is None if it was stopped."""

    records: Sequence[Mapping[str, Any]] = ()
    outcome: Outcome | None = None
    measurement: Measurement = field(default_factory=Measurement)
    log: Sequence[str] = ()

    @property
    def has_failed(self) -> bool:
        return self.outcome is not None and self.outcome.status in {Status.FAILED, Status.INTERRUPTED}


@dataclass(frozen=True)
class Runs:
    """Runs the baseline of a `training` in directories below `root`, forked from `server`."""

    training: TrainingSetup
    root: Path
    server: ForkServer

    def order(self, name: str, seed: int) -> Order:
        """Returns the order of a search's first trial, with its checkpoint kept for resuming."""
        place = TrialDir(self.root / name)
        order = self.training.order(self.training.space.baseline_config, place, seed=seed)
        return replace(order, keep_work=True)

    def run(self, order: Order, is_enough: Callable[[TrialReport], bool], until_s: float) -> Run:
        """Runs an order until `is_enough` is True for a report, or until `until_s` on the monotonic clock."""
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
    """Returns the order without its limit of samples."""
    return replace(order, ends=Ends.never())


def tail(log: Path) -> list[str]:
    """Returns the last nonblank lines of a log."""
    if not log.is_file():
        return []
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return [line for line in lines if line.strip()][-_LINES:]
