"""One trial by itself, from its start to its end: no search, no Ray, nothing beside it."""

from collections.abc import Callable

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
    """How the trial ended and what it showed; every report on the way is `heard`.

    Raises InputError where something outside has interrupted it: called again, it goes on.
    """
    attempt = Attempt(order, server)
    try:
        while (outcome := (report := attempt.step(_POLL_S)).outcome) is None:
            if heard is not None:
                heard(report)
    finally:
        attempt.stop()
    if outcome.status is Status.INTERRUPTED:
        raise InputError(f"{outcome.reason}; nothing is lost: fix that and run the command again")
    return outcome, attempt.measurement()
