"""Attempts at a training, one after the other, until it is over: what can be answered does not end it."""

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

STOPPED = Outcome(Status.INTERRUPTED, reason="was asked to stop")
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
    """The last report of a training, which has its outcome; every report on the way is heard.

    `order_with` makes the order with the changes that were made to its settings so far. `going_on` is told
    before it is gone on with after an attempt that has failed. As soon as it `is_stopping`, the workload may
    write its checkpoint, and the outcome is STOPPED.
    """
    changes: dict[str, Setting] = {}
    tried = Tried()
    while True:
        order = order_with(changes)
        last = _attempt(order, server, hear, is_stopping)
        outcome = last.outcome or STOPPED
        tried = tried.after(last.samples)
        found = None if is_stopping() else answer(outcome, order.settings, tried, retries)
        if found is None:
            return last
        going_on(last, found)
        changes |= found.changes
        _sleep(found.wait_s, is_stopping)


def _attempt(
    order: Order, server: ForkServer, hear: Callable[[Report], None], is_stopping: Callable[[], bool]
) -> Report:
    with closing(alone.reports(order, server)) as told:
        for report in told:
            hear(report)
            if report.outcome is None and is_stopping():
                return replace(report, outcome=STOPPED)
    return report


def _sleep(seconds: float, is_stopping: Callable[[], bool]) -> None:
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s and not is_stopping():
        time.sleep(_LOOK_S)
