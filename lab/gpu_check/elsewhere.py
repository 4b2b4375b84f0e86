"""Runs a trial in a process with a changed environment: `python -m` this module with an order in JSON.

Prints the trial's outcome as JSON.
"""

import json
import sys

from autotune.trials import order as orders
from autotune.trials.attempt import Attempt
from autotune.trials.fork_server import ForkServer
from autotune.trials.order import Order
from autotune.workloads import registry

_POLL_S = 1.0


def main(told: str) -> None:
    order = orders.from_dict(json.loads(told))
    if not isinstance(order, Order):
        raise TypeError("only a trial runs in another process")
    attempt = Attempt(order, ForkServer(registry.load(order.workload).preload))
    try:
        while (outcome := attempt.step(_POLL_S).outcome) is None:
            pass
    finally:
        attempt.stop()
    print(json.dumps(outcome.to_dict()))


if __name__ == "__main__":
    main(sys.argv[1])
