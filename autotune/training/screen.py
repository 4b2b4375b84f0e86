"""Shows a running training: a live panel on a terminal, otherwise a line now and then."""

import os
import time
from contextlib import suppress
from types import TracebackType
from typing import Self

from rich.console import Console, RenderableType
from rich.text import Text

from autotune.core.errors import printable
from autotune.display import live
from autotune.display.live import LiveView
from autotune.training import draw, told
from autotune.training.standing import Standing

_SAY_EVERY_S = 30.0


class TrainingScreen:
    """Shows how a training stands, and says what happens.

    On a terminal it is a panel that is redrawn in place, below the lines of what happens. The panel
    disappears once the training stops: the waiting after that shows nothing, and a second signal may end this
    process before it can tidy up.
    """

    def __init__(self, console: Console) -> None:
        self._standing: Standing | None = None
        self._said_s = float("-inf")
        self._view = LiveView(console, self._drawn) if live.is_possible(console) else None

    def __enter__(self) -> Self:
        if self._view:
            self._view.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leaves the terminal as it was."""
        if self._view:
            self._view.close()

    def say(self, text: str) -> None:
        if self._view:
            self._view.say(text)
        else:
            with suppress(OSError):  # the disk of a log is full: the training continues
                print(printable(text), flush=True)

    def stands(self, standing: Standing) -> None:
        """Hears every second how the training stands."""
        self._standing = standing
        if self._view is None and time.monotonic() - self._said_s >= _SAY_EVERY_S:
            self._said_s = time.monotonic()
            self.say(told.progress(standing))

    def stopping(self, text: str) -> None:
        """Says that a signal has come: from its handler, maybe in the middle of a print."""
        if self._view and self._view.is_open:
            self._view.close_with(text)
        else:
            with suppress(OSError):
                os.write(1, f"{text}\n".encode())

    def _drawn(self) -> RenderableType:
        return draw.panel(self._standing) if self._standing else Text()
