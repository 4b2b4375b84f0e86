"""A terminal in a few lines: what is on it after a program has written. It knows the sequences of Rich."""

import codecs
import fcntl
import io
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections import deque

_PIECE = re.compile(
    r"\x1b\[\?\d+[hl]|\x1b\[(?P<count>\d*)(?P<what>[A-Za-z])|\x1b\[[\d;]*m|(?P<plain>[^\x1b])"
)
_SHOW_CURSOR, _HIDE_CURSOR = "\x1b[?25h", "\x1b[?25l"


class Tty(io.StringIO):
    """What was written to a terminal."""

    def isatty(self) -> bool:
        return True

    def on(self, columns: int, lines: int) -> "Terminal":
        """A terminal that has received it."""
        terminal = Terminal(columns, lines)
        terminal.feed(self.getvalue().replace("\n", "\r\n"))
        return terminal


class Terminal:
    """`columns` by `lines`; what is wider than the terminal continues in the next line, as in xterm."""

    def __init__(self, columns: int, lines: int) -> None:
        self.columns, self.lines = columns, lines
        self.above: list[str] = []  # what was scrolled away
        self.wrapped = self.cleared = 0  # lines that were too long, and how often all was cleared
        self.has_cursor = True
        self._screen: deque[list[str]] = deque([[]])
        self._row = self._column = 0
        self._begun = ""  # the start of an escape sequence whose rest is still to come

    def resize(self, columns: int, lines: int) -> None:
        """Lines stay as they are, cut off at the right; what does not fit below pushes the rest up."""
        self.columns, self.lines = columns, lines
        while len(self._screen) > lines:
            self._scroll()

    def _scroll(self) -> None:
        self.above.append("".join(self._screen.popleft()).rstrip())
        self._row -= 1

    def feed(self, text: str) -> None:
        whole, begun, rest = (self._begun + text).rpartition("\x1b")
        if not begun or _PIECE.match(begun + rest):
            whole, begun, rest = self._begun + text, "", ""
        self._begun = begun + rest
        for piece in _PIECE.finditer(whole):
            if piece["plain"]:
                self._write(piece["plain"])
            elif piece[0] in {_SHOW_CURSOR, _HIDE_CURSOR}:
                self.has_cursor = piece[0] == _SHOW_CURSOR
            elif piece["what"] == "A":
                self._row = max(0, self._row - int(piece["count"] or 1))
            elif piece["what"] == "K":
                self._screen[self._row] = []
            elif piece["what"] == "J":
                self.cleared += 1

    def _write(self, character: str) -> None:
        if character == "\r":
            self._column = 0
        elif character == "\n":
            self._down()
        else:
            if self._column == self.columns:
                self.wrapped += 1
                self._down()
                self._column = 0
            line = self._screen[self._row]
            line += [" "] * (self._column + 1 - len(line))
            line[self._column] = character
            self._column += 1

    def _down(self) -> None:
        self._row += 1
        if self._row == len(self._screen):
            self._screen.append([])
        if len(self._screen) > self.lines:
            self._scroll()

    @property
    def shown(self) -> list[str]:
        return ["".join(line[: self.columns]).rstrip() for line in self._screen]

    @property
    def left(self) -> list[str]:
        """What was scrolled away, and what is shown, except for empty lines."""
        return [line for line in [*self.above, *self.shown] if line]


class OnTerminal:
    """Python with these arguments in a process of its own, and the pseudo-terminal that it writes to."""

    def __init__(self, columns: int, lines: int, *arguments: object) -> None:
        self.terminal = Terminal(columns, lines)
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._master, slave = pty.openpty()
        self._set_size(columns, lines)
        environment = {k: v for k, v in os.environ.items() if k not in {"COLUMNS", "LINES"}}
        self.process = subprocess.Popen(
            [sys.executable, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=slave,
            stderr=slave,
            env=environment | {"TERM": "xterm-256color"},
            text=True,
        )
        os.close(slave)

    def _set_size(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def resize(self, columns: int, lines: int) -> None:
        self._set_size(columns, lines)
        self.terminal.resize(columns, lines)
        self.process.send_signal(signal.SIGWINCH)

    def step(self, times: int = 1) -> None:
        """Wakes what waits for lines."""
        for _ in range(times):
            self.process.stdin.write("\n")
            self.process.stdin.flush()

    def read_until(self, condition, seconds: float = 30) -> None:
        deadline = time.monotonic() + seconds
        while not condition(self.terminal.shown):
            assert time.monotonic() < deadline, "\n".join(self.terminal.shown)
            self._read()

    def _read(self, seconds: float = 0.05) -> bool:
        """Reads what is there; False when the other end is closed."""
        if not select.select([self._master], [], [], seconds)[0]:
            return True
        try:
            self.terminal.feed(self._decoder.decode(os.read(self._master, 65536)))
        except OSError:
            return False
        return True

    def end(self) -> int:
        """Its exit code, once all that it has written is read."""
        self.process.stdin.close()
        while self._read(5):
            pass
        os.close(self._master)
        return self.process.wait()

    @property
    def left(self) -> list[str]:
        return self.terminal.left
