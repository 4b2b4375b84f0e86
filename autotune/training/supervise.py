"""Repeats attempts at a training until it ends, and resumes it after recoverable failures."""

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace

from autotune.core.settings import ACCUMULATION, MICRO_BATCH, Setting
from autotune.core.trial import Failure, Outcome, Status
from autotune.training import watch
from autotune.trials import attempt
from autotune.trials.fork_server import ForkServer
from autotune.trials.order import Order
from autotune.trials.report import TrialReport

_LOOK_S = 0.1
_FIRST_WAIT_S, _LONGEST_WAIT_S = 2.0, 300.0


@dataclass(frozen=True)
class GoOn:
    """The decision to resume from the checkpoint after `wait_s`, with `changes` to the settings."""

    wait_s: float
    text: str
    changes: Mapping[str, Setting]


def decide(outcome: Outcome, settings: Mapping[str, Setting], times: int, most: int) -> GoOn | None:
    """Decides how to resume after an attempt with `outcome`; None if the training is over.

    It is the attempt number `times` in a row without progress; `most` of them are resumed. An attempt that
    ran out of its own memory is resumed with smaller micro-batches, unless their size is odd or unknown. If
    the machine ran out of memory, other programs may have used it: the attempt is repeated unchanged first.
    """
    if outcome.status is Status.COMPLETED or outcome.failure is Failure.DIVERGED:
        return None
    is_used_up = times > most
    if outcome.failure is Failure.OOM and (outcome.shortage is None or is_used_up):
        size, accumulated = settings.get(MICRO_BATCH), settings.get(ACCUMULATION)
        if not isinstance(size, int) or not isinstance(accumulated, int) or size < 2 or size % 2:
            return None
        smaller = {MICRO_BATCH: size // 2, ACCUMULATION: 2 * accumulated}
        text = f"continues with {watch.describe_smaller(size // 2, size, size * accumulated)}"
        return GoOn(0.0, text, smaller)
    may_succeed = outcome.is_passing or outcome.failure in {Failure.TIMEOUT, Failure.OOM}
    if is_used_up or not (may_succeed or outcome.status is Status.INTERRUPTED):
        return None
    wait_s = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2.0 ** max(0, times - 1))
    return GoOn(wait_s, "continues from its checkpoint", {})


def run(
    order_with: Callable[[Mapping[str, Setting]], Order],
    server: ForkServer,
    *,
    retries: int,
    hear: Callable[[TrialReport], None],
    going_on: Callable[[TrialReport, GoOn], None],
    is_stopping: Callable[[], bool],
) -> TrialReport:
    """Runs a training to its end and returns its last report, with the outcome; `hear` gets every report.

    `order_with` builds the order from all changes to the settings so far. `going_on` is called before an
    attempt is resumed. Once `is_stopping` is True, the workload may still write its checkpoint, and the
    outcome is INTERRUPTED unless the training has ended.
    """
    changes: dict[str, Setting] = {}
    times, furthest = 0, 0  # attempts in a row without progress, and the most samples so far
    while True:
        order = order_with(changes)
        with closing(attempt.reports(order, server, is_stopping)) as reports:
            for last in reports:
                hear(last)
        outcome = last.outcome or Outcome(Status.INTERRUPTED)
        times = 1 if last.samples > furthest else times + 1
        furthest = max(furthest, last.samples)
        resumption = decide(outcome, order.settings, times, retries)
        if resumption is None:
            return last
        if not is_stopping():
            going_on(last, resumption)
            changes |= resumption.changes
            if resumption.changes:
                times = 0  # the smaller micro-batch has not been tried yet
            _sleep(resumption.wait_s, is_stopping)
        if is_stopping():  # whatever ended the attempt, it can be resumed later
            return replace(last, outcome=Outcome(Status.INTERRUPTED, reason=outcome.reason))


def _sleep(seconds: float, is_stopping: Callable[[], bool]) -> None:
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s and not is_stopping():
        time.sleep(_LOOK_S)
