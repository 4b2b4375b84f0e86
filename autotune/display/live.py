"""Redraws the picture of a search or a training in place on a terminal, below lines that stay."""

import io
import queue
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, redirect_stderr, redirect_stdout, suppress
from typing import Self, TextIO

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from autotune.core.errors import printable

_REFRESH_S = 1.0


def is_possible(console: Console) -> bool:
    """Returns True if `console` is a terminal on which Rich can redraw; colours do not prove that."""
    is_drawn = console.is_terminal and console.is_interactive and not console.is_dumb_terminal
    return is_drawn and console.file.isatty()


def say(console: Console, text: str) -> None:
    """Prints a line; a terminal wraps it between words, except for a command, so that it can be copied."""
    is_whole = not console.is_terminal or text.lstrip().startswith("python ")
    console.print(Text(printable(text)), soft_wrap=is_whole)


class LiveView:
    """Redraws the picture that `draw` returns, below printed lines, while the context is open."""

    def __init__(self, console: Console, draw: Callable[[], RenderableType]) -> None:
        self._console, self._draw = console, draw
        self._lock, self.is_open = threading.RLock(), False
        self._last_words: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._live = Live(
            get_renderable=self._drawn,
            console=console,
            # Rich's own thread holds no lock between measuring the screen and overwriting it: a line printed
            # in between would leave half a picture behind.
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._thread = threading.Thread(target=self._refresh, name="live view", daemon=True)
        self._redirected = ExitStack()

    def __enter__(self) -> Self:
        self._redirected.enter_context(redirect_stdout(_Aside(sys.stdout, self.say)))
        self._redirected.enter_context(redirect_stderr(_Aside(sys.stderr, self.say)))
        self.is_open = True
        self._live.start(refresh=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leaves the terminal as it was, with the printed lines."""
        with self._lock:
            if self.is_open:
                self.is_open = False
                with suppress(OSError):
                    self._live.stop()
                self._redirected.close()

    def say(self, text: str) -> None:
        with self._lock, suppress(OSError):
            say(self._console, text)

    def close_with(self, text: str) -> None:
        """Closes the view soon, with a last line; a signal handler may call it at any time."""
        self._last_words.put(text)

    def _refresh(self) -> None:
        while self.is_open:
            try:
                text = self._last_words.get(timeout=_REFRESH_S)
            except queue.Empty:
                with self._lock, suppress(OSError):
                    if self.is_open:
                        self._live.refresh()
            else:
                self.close()
                self.say(text)

    def _drawn(self) -> RenderableType:
        if not self.is_open:
            return Text()  # Rich draws once more when it stops, and crops nothing then
        try:
            return self._draw()
        except Exception as error:  # noqa: BLE001 - it would end the search that is only shown here
            return Text(printable(f"cannot be drawn: {type(error).__name__}: {error}"))


class _Aside(io.TextIOBase):
    """Replaces a `file` such as standard output: passes what libraries write to `say`, line by line."""

    def __init__(self, file: TextIO, say: Callable[[str], None]) -> None:
        self.rich_proxied_file = file  # the name by which Rich finds the file to write to
        self._say, self._rest, self._lock = say, "", threading.RLock()

    def write(self, text: str) -> int:
        with self._lock:
            *lines, self._rest = (self._rest + text).split("\n")
            for line in lines:
                self._say(Text.from_ansi(line).plain)
        return len(text)

    def fileno(self) -> int:
        return self.rich_proxied_file.fileno()
