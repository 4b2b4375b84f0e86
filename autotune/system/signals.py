"""Signal handlers for a block."""

import signal
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

INTERRUPTS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def handling(handlers: Mapping[int, Callable[[int, Any], Any]]) -> Iterator[dict[int, Any]]:
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


def interrupting(stop: Callable[[], None], interrupts: Collection[int]) -> AbstractContextManager[object]:
    """Calls `stop` on the first signal among `interrupts`, and ends the block at once on the second."""
    if threading.current_thread() is not threading.main_thread():
        return nullcontext()

    def interrupt(number: int, _: Any) -> None:
        stop()
        signal.signal(number, signal.default_int_handler)

    return handling(dict.fromkeys(INTERRUPTS, lambda *_: None) | dict.fromkeys(interrupts, interrupt))
