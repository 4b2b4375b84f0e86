"""Waits for what other processes and threads do, and looks at processes that may end meanwhile."""

import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import psutil

T = TypeVar("T")


def wait_for(condition: Callable[[], T], seconds: float = 240.0) -> T:
    """Waits until `condition` returns something true, and returns that; fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (met := condition()):
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.02)
    return met


def status(pid: int) -> str:
    """Returns psutil's status; dead if there is no such process."""
    try:
        return psutil.Process(pid).status()
    except psutil.NoSuchProcess:
        return psutil.STATUS_DEAD


def is_over(pid: int) -> bool:
    return status(pid) in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)


def alive(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Returns those still alive; a new process with the number of one that has ended does not count."""
    return [process for process in processes if process.is_running() and not is_over(process.pid)]


def finish(running: Any) -> Any:
    """Runs an attempt at a trial, or a race, to its end; returns the last report."""
    return wait_for(lambda: report if (report := running.step(0.2)).outcome else None)
