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
    """The last report of a training, which has its outcome; `hear` gets every report.

    `order_with` makes the order with the changes that were made to its settings so far. `going_on` is called
    after a failed attempt, with how the training is resumed, before it is. As soon as it `is_stopping`, the
    workload may write its checkpoint; unless that is the training's end anyway, the outcome is INTERRUPTED.
    """
    changes: dict[str, Setting] = {}
    tried = Tried()
    while True:
        order = order_with(changes)
        with closing(alone.reports(order, server, is_stopping)) as told:
            for last in told:
                hear(last)
        outcome = last.outcome or Outcome(Status.INTERRUPTED)
        tried = tried.after(last.samples)
        found = answer(outcome, order.settings, tried, retries)
        if found is None:
            return last
        if not is_stopping():
            going_on(last, found)
            changes |= found.changes
            if found.changes:
                tried = Tried(0, tried.samples)  # the smaller one has not been tried yet
            _sleep(found.wait_s, is_stopping)
        if is_stopping():  # whatever ended the attempt: it is resumed another day
            return replace(last, outcome=Outcome(Status.INTERRUPTED, reason=outcome.reason))


def _sleep(seconds: float, is_stopping: Callable[[], bool]) -> None:
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s and not is_stopping():
        time.sleep(_LOOK_S)
