"""Ends a search on a signal: gracefully the first time, at once the second."""

import signal
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from autotune.searcher.search import Search

INTERRUPTS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def interrupting(search: Search, interrupts: Collection[int]) -> Iterator[None]:
    """Ends the search gracefully on the first signal among `interrupts`, and at once on the second."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, _: Any) -> None:
        search.stop("interrupted", interrupted=True)
        signal.signal(number, signal.default_int_handler)

    handlers = dict.fromkeys(INTERRUPTS, lambda *_: None) | dict.fromkeys(interrupts, interrupt)
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
