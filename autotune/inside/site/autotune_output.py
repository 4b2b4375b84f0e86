"""Says in a script's output when each line was printed; its reader takes that out again.

A line of its own clock, as a step is: read a moment later, it would be taken for one of the next steps'.
"""

from __future__ import annotations

import os
import re
import time
from typing import Any

_MARK = re.compile("\x1b_autotune ([0-9.e+-]+)\x1b\\\\")
_clock_s = time.monotonic  # kept here: a script that replaces the module's clock replaces its own alone


def name_of(descriptor: int) -> str:
    """What identifies the file or pipe of a descriptor."""
    status = os.fstat(descriptor)
    return f"{status.st_dev}:{status.st_ino}"


def stamp_lines(stream: Any, own: str) -> None:
    """Stamps what is written to a text `stream` as long as it goes straight to the pipe called `own`.

    Into a file, or through another program, it goes as it is.
    """
    write, descriptor = stream.write, stream.fileno()

    def stamped(text: Any) -> Any:
        if not isinstance(text, str) or not text or not _leads_to(descriptor, own):
            return write(text)
        write(marked(text, _clock_s()))
        return len(text)

    stream.write = stamped


def marked(text: str, at_s: float) -> str:
    """`text` with the moment at the end of each line, which a carriage return may end, too, and of the rest.

    As an application program command of ECMA-48, which no terminal shows.
    """
    mark = f"\x1b_autotune {at_s!r}\x1b\\"
    line = text[:-1] if text.endswith(("\n", "\r")) else text
    return line.replace("\n", f"{mark}\n") + mark + text[len(line) :]


def unmarked(line: str) -> tuple[str, float | None]:
    """A line as it was printed, and when that was; None where it does not say so."""
    if "\x1b_" not in line:
        return line, None
    moments = _MARK.findall(line)
    return _MARK.sub("", line), float(moments[-1]) if moments else None


def _leads_to(descriptor: int, own: str) -> bool:
    try:
        return name_of(descriptor) == own
    except OSError:
        return False
