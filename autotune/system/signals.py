"""Signal handlers for a block."""

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

Handler = Callable[[int, Any], Any]


@contextmanager
def handling(handlers: Mapping[int, Handler]) -> Iterator[dict[int, Any]]:
    """Sets signal handlers for the block; provides those from before, to which it returns."""
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield before
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ended_by_sigterm() -> AbstractContextManager[object]:
    """Makes SIGTERM end the block as Ctrl-C does, so that its trainings end and their files are removed."""
    return handling({signal.SIGTERM: signal.default_int_handler})
