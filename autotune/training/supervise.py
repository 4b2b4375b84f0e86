"""Repeats attempts at a training until it ends; recoverable failures are resumed."""

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace

from autotune.core.settings import Setting
from autotune.core.trial import Outcome, Status
from autotune.training.answers import GoOn, Tried, answer
from autotune.trials import alone
from autotune.trials.fork_server import ForkServer
from autotune.trials.order import Order
from autotune.trials.reported import Report

_LOOK_S = 0.1


def run(
    order_with: Callable[[Mapping[str, Setting]], Order],
    server: ForkServer,
    *,
    retries: int,
    hear: Callable[[Report], None],
    going_on: Callable[[Report, GoOn], None],
    is_stopping: Callable[[], bool],
) -> Report:
    """Runs a training to its end and returns its last report, with the outcome; `hear` gets every report.

    `order_with` builds the order from all changes to the settings so far. `going_on` is called before an
    attempt is resumed. Once `is_stopping` is True, the workload may still write its checkpoint, and the
    outcome is INTERRUPTED unless the training has ended.
    """
    changes: dict[str, Setting] = {}
    tried = Tried()
    while True:
        order = order_with(changes)
        with closing(alone.reports(order, server, is_stopping)) as reports:
            for last in reports:
                hear(last)
        outcome = last.outcome or Outcome(Status.INTERRUPTED)
        tried = tried.after(last.samples)
        resumption = answer(outcome, order.settings, tried, retries)
        if resumption is None:
            return last
        if not is_stopping():
            going_on(last, resumption)
            changes |= resumption.changes
            if resumption.changes:
                tried = Tried(0, tried.samples)  # the smaller micro-batch has not been tried yet
            _sleep(resumption.wait_s, is_stopping)
        if is_stopping():  # whatever ended the attempt, it can be resumed later
            return replace(last, outcome=Outcome(Status.INTERRUPTED, reason=outcome.reason))


def _sleep(seconds: float, is_stopping: Callable[[], bool]) -> None:
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s and not is_stopping():
        time.sleep(_LOOK_S)
