"""Waits for what other processes and threads do."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def wait_for(condition: Callable[[], T], seconds: float = 240.0) -> T:
    """Waits until `condition` returns something true, and returns that; fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (met := condition()):
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.02)
    return met


def finish(running: Any) -> Any:
    """Runs an attempt at a trial, or a race, to its end; returns the last report."""
    return wait_for(lambda: report if (report := running.step(0.2)).outcome else None)
