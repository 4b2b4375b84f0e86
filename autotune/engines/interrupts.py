"""Ends a search on a signal: gracefully the first time, at once the second."""

import signal
import threading
from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from autotune.searcher.search import Search
from autotune.system.signals import handling

INTERRUPTS = (signal.SIGINT, signal.SIGTERM)


def interrupting(search: Search, interrupts: Collection[int]) -> AbstractContextManager[object]:
    """Ends the search gracefully on the first signal among `interrupts`, and at once on the second."""
    if threading.current_thread() is not threading.main_thread():
        return nullcontext()

    def interrupt(number: int, _: Any) -> None:
        search.stop("interrupted", interrupted=True)
        signal.signal(number, signal.default_int_handler)

    return handling(dict.fromkeys(INTERRUPTS, lambda *_: None) | dict.fromkeys(interrupts, interrupt))
