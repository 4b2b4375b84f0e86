"""Marks the lines of a script's output with their times, because they may be read only after later steps."""

from __future__ import annotations

import os
import re
import time
from typing import Any

# An application program command of ECMA-48, which terminals do not show.
_MARK = re.compile("\x1b_autotune ([0-9.e+-]+)\x1b\\\\")
_clock_s = time.monotonic  # bound here, because a script may patch time.monotonic


def name_of(descriptor: int) -> str:
    """Returns an identifier of the file or pipe behind a descriptor."""
    status = os.fstat(descriptor)
    return f"{status.st_dev}:{status.st_ino}"


def stamp_lines(stream: Any, own: str) -> None:
    """Marks the lines written to `stream` as long as it writes to the pipe called `own`."""
    write, descriptor = stream.write, stream.fileno()

    def stamped(text: Any) -> Any:
        if not isinstance(text, str) or not text or not _leads_to(descriptor, own):
            return write(text)
        write(marked(text, _clock_s()))
        return len(text)

    stream.write = stamped


def marked(text: str, at_s: float) -> str:
    """Returns `text` with the time `at_s` marked at the end of each line, and of an unfinished last one."""
    mark = f"\x1b_autotune {at_s!r}\x1b\\"
    line = text[:-1] if text.endswith(("\n", "\r")) else text
    return line.replace("\n", f"{mark}\n") + mark + text[len(line) :]


def unmarked(line: str) -> tuple[str, float | None]:
    """Returns a line as it was printed, and the time; None as the time if the line has no mark."""
    if "\x1b_" not in line:
        return line, None
    moments = _MARK.findall(line)
    return _MARK.sub("", line), float(moments[-1]) if moments else None


def _leads_to(descriptor: int, own: str) -> bool:
    try:
        return name_of(descriptor) == own
    except OSError:
        return False
