"""A terminal in a few lines: what is on it after a program has written. It knows what Rich writes."""

import io
import re
from collections import deque

_PIECE = re.compile(
    r"\x1b\[\?\d+[hl]|\x1b\[(?P<count>\d*)(?P<what>[A-Za-z])|\x1b\[[\d;]*m|(?P<plain>[^\x1b])"
)


class Tty(io.StringIO):
    """What was written to a terminal."""

    def isatty(self) -> bool:
        return True


class Terminal:
    """`columns` by `lines`; what is wider than the terminal goes on in the next line, as it does in xterm."""

    def __init__(self, columns: int, lines: int) -> None:
        self.columns, self.lines = columns, lines
        self.above: list[str] = []  # what was scrolled away
        self.wrapped = self.cleared = 0  # lines that were too long, and times that all was cleared
        self._screen: deque[list[str]] = deque([[]])
        self._row = self._column = 0
        self._begun = ""  # of an escape sequence, the rest of which is still to come

    def resize(self, columns: int, lines: int) -> None:
        """Lines stay as they are, cut off at the right; what has no room below pushes the rest up."""
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
