"""One trial by itself, from its start to its end: no search, no Ray, nothing alongside it."""

from collections.abc import Callable, Generator
from contextlib import closing

from autotune.core.errors import InputError
from autotune.core.trial import Measurement, Outcome, Status
from autotune.trials.attempt import Attempt
from autotune.trials.fork_server import ForkServer
from autotune.trials.order import Order
from autotune.trials.reported import Report

_POLL_S = 1.0


def run(
    order: Order, server: ForkServer, heard: Callable[[Report], None] | None = None
) -> tuple[Outcome, Measurement]:
    """How the trial ended and what it showed; `heard` gets every report on the way.

    Raises InputError where something outside has interrupted it: called again, it resumes.
    """
    with closing(reports(order, server)) as told:
        for report in told:
            if report.outcome is None and heard is not None:
                heard(report)
    outcome = report.outcome or Outcome(Status.INTERRUPTED)
    if outcome.status is Status.INTERRUPTED:
        raise InputError(f"{outcome.reason}; nothing is lost: fix that and run the command again")
    return outcome, report.measurement


def reports(
    order: Order, server: ForkServer, is_stopping: Callable[[], bool] = lambda: False
) -> Generator[Report, None, None]:
    """What the trial reports every second; the last report has its outcome.

    As soon as it `is_stopping`, or where this is closed before its end, the workload may write its
    checkpoint, to resume from there another day. Closed while it `is_stopping`, as by a second Ctrl-C, it
    does not wait for that.
    """
    attempt = Attempt(order, server)
    try:
        while True:
            report = attempt.step(_POLL_S, is_stopping)
            yield report
            if report.outcome is not None:
                return
    finally:
        attempt.stop(waits=not is_stopping())
