"""Runs a trial in a process with a changed environment: `python -m` this module with an order in JSON.

Prints the trial's outcome as JSON.
"""

import json
import sys
from dataclasses import asdict

from autotune.trials import attempt
from autotune.trials import order as orders
from autotune.trials.fork_server import ForkServer
from autotune.trials.order import Order
from autotune.workloads import registry


def main(told: str) -> None:
    order = orders.ORDER.validate_python(json.loads(told))
    if not isinstance(order, Order):
        raise TypeError("only a trial runs in another process")
    for report in attempt.reports(order, ForkServer(registry.load(order.workload).preload)):
        outcome = report.outcome
    print(json.dumps(outcome and asdict(outcome)))


if __name__ == "__main__":
    main(sys.argv[1])
