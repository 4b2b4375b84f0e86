"""What the user sees while a training runs: a live panel on a terminal, else a line now and then."""

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


class Lines:
    """Says what happens, and now and then how the training stands, in lines."""

    def __init__(self) -> None:
        self._said_s = float("-inf")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leaves the terminal as it was."""

    def say(self, text: str) -> None:
        with suppress(OSError):  # the terminal is gone, or the disk of a log full: the training continues
            print(printable(text), flush=True)

    def stands(self, standing: Standing) -> None:
        """Hears every second how the training stands."""
        if time.monotonic() - self._said_s >= _SAY_EVERY_S:
            self._said_s = time.monotonic()
            self.say(told.progress(standing))

    def stopping(self, text: str) -> None:
        """Says that a signal has come: from its handler, maybe in the middle of a print."""
        with suppress(OSError):
            os.write(1, f"{text}\n".encode())


class Panel(Lines):
    """Redraws how the training stands in place, on a terminal. What happens stays above it as a line.

    It disappears once the training stops: the waiting after that shows nothing, and a second signal may end
    this process before it can tidy up.
    """

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._standing: Standing | None = None
        self._view = LiveView(console, self._drawn)

    def __enter__(self) -> Self:
        self._view.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._view.close()

    def say(self, text: str) -> None:
        self._view.say(text)

    def stands(self, standing: Standing) -> None:
        self._standing = standing

    def stopping(self, text: str) -> None:
        if self._view.is_open:
            self._view.close_with(text)
        else:
            super().stopping(text)

    def _drawn(self) -> RenderableType:
        return draw.panel(self._standing) if self._standing else Text()


def screen(console: Console) -> Lines:
    """What shows a training on `console`."""
    return Panel(console) if live.is_possible(console) else Lines()
