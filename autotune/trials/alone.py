"""Runs one trial from start to end, without a search and without Ray."""

from collections.abc import Callable, Generator
from contextlib import closing

from autotune.core.errors import InputError
from autotune.core.measurement import Measurement
from autotune.core.trial import Outcome, Status
from autotune.trials.attempt import Attempt
from autotune.trials.fork_server import ForkServer
from autotune.trials.order import Order
from autotune.trials.report import TrialReport

_POLL_S = 1.0


def run(
    order: Order, server: ForkServer, listen: Callable[[TrialReport], None] | None = None
) -> tuple[Outcome, Measurement]:
    """Runs the trial and returns its outcome and measurement; `listen` gets every report but the last.

    Raises InputError if the trial was interrupted from outside; calling it again resumes the trial.
    """
    with closing(reports(order, server)) as running:
        for report in running:
            if report.outcome is None and listen is not None:
                listen(report)
    outcome = report.outcome or Outcome(Status.INTERRUPTED)
    if outcome.status is Status.INTERRUPTED:
        raise InputError(f"{outcome.reason}; nothing is lost. Fix that, and run the command again")
    return outcome, report.measurement


def reports(
    order: Order, server: ForkServer, is_stopping: Callable[[], bool] = lambda: False
) -> Generator[TrialReport, None, None]:
    """Yields a report every second; the last one carries the outcome.

    If `is_stopping` becomes true, or the generator is closed early, the workload first writes a checkpoint to
    resume from. If both hold, as after a second Ctrl-C, it is killed without waiting for that.
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
