"""What the end of a command means: the exception to raise, which says in one line why. Pure."""

import builtins
import re
import signal
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from autotune.core.errors import printable, without_trace

_QUOTED = 100  # characters of its output; a reason is one line
_LINES_QUOTED = 3
_LINES_OF_MEMORY = 20  # C++ code that cannot allocate says so shortly before it aborts
_TRACEBACK = "Traceback (most recent call last):"
_RAISED = re.compile(r"([A-Za-z_][\w.]*)(?:: (.*))?")
_ERRNO = re.compile(r"\[Errno (\d+)\] ([^:]*)(?:: '(.*)')?$")
_BY_SHELLS = 128  # a shell exits with the number of the signal that ended its command, plus this
_KILLED = 9
# Of whose errors the text says whether memory ran out: what C++ code, the loader and the system raise.
_TOLD_BY_TEXT = (RuntimeError, SystemError, ImportError, OSError)


class CommandError(RuntimeError):
    """A command that did not do what it should: how it ended, or what it lacks."""


class ResumeError(CommandError):
    """A command that was meant to resume from a checkpoint, and ended before its first step.

    One that `was_killed` may do better another time; of any other the checkpoint may be the cause.
    """

    def __init__(self, error: Exception, code: int) -> None:
        super().__init__(f"while continuing from its checkpoint: {line_of(error)}")
        self.__cause__ = error
        self.was_killed = not 0 < code < _BY_SHELLS


class OutputError(RuntimeError):
    """A line of a command's output, as the cause of its end."""


class Told(NamedTuple):
    """The exception that ended a script, by its own words."""

    type_name: str
    message: str


def of_exit(code: int, pid: int, told: Told | None, tail: Sequence[str]) -> Exception:
    """Why a command failed that has exited with `code`, negative for a signal.

    The script's own exception where there is one, `told` or at the end of its output; else how it ended, and
    the last line of its output. Its causes are then further lines: one may say that memory ran out.
    """
    if code in {-_KILLED, _BY_SHELLS + _KILLED}:
        return without_trace(CommandError(f"command (pid {pid}) is killed by signal: Killed"))
    if told := told or _raised_in(tail):
        return without_trace(_as_raised(told))
    error = CommandError(": ".join(filter(None, (_how(code), _quote(tail, 1)))))
    error.__cause__ = _causes(tail[-_LINES_OF_MEMORY:])
    return without_trace(error)


def line_of(error: Exception) -> str:
    """The text of `error`, with its type's name where that is the script's."""
    return str(error) if isinstance(error, CommandError) else f"{type(error).__name__}: {error}"


def signal_name(number: int) -> str:
    """SIGKILL for 9."""
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def _how(code: int) -> str:
    if code < 0:
        return f"killed by {signal_name(-code)}"
    by = f" ({signal_name(code - _BY_SHELLS)})" if _BY_SHELLS < code <= _BY_SHELLS + 64 else ""
    return f"exited with {code}{by}"


def _causes(lines: Iterable[str]) -> OutputError | None:
    cause: OutputError | None = None
    for line in lines:
        error = OutputError(line)
        error.__cause__, cause = cause, error
    return cause


def _raised_in(tail: Sequence[str]) -> Told | None:
    """The exception of the last traceback in the output."""
    starts = [i for i, line in enumerate(tail) if line.strip().endswith(_TRACEBACK)]
    after = tail[starts[-1] + 1 :] if starts else []
    match = next((m for line in after if line[:1].strip() and (m := _RAISED.fullmatch(line.strip()))), None)
    return match and Told(match[1], match[2] or "")


def _as_raised(told: Told) -> Exception:
    """An exception of the same name and words, by which it is judged as if it had been raised here."""
    module, _, name = told.type_name.rpartition(".")
    known = getattr(builtins, name, None) if module in {"", "builtins"} else None
    known = known if isinstance(known, type) else Exception
    if issubclass(known, OSError) and (match := _ERRNO.match(told.message)):
        return OSError(int(match[1]), match[2], *([match[3]] if match[3] else []))
    is_told_by_text = issubclass(known, _TOLD_BY_TEXT) or module.partition(".")[0] == "torch"
    made: type[Exception] = type(name, (RuntimeError if is_told_by_text else Exception,), {})
    return made(told.message)


def of_nothing(lacks: Sequence[str], tail: Sequence[str]) -> CommandError:
    """What a command did not show that has ended as it should; what it printed last is quoted."""
    quote = _quote(tail, _LINES_QUOTED)
    said = f"the last lines of its output: {quote}" if quote else "it printed nothing"
    return CommandError("; ".join([*lacks, said]))


def short(text: str, most: int = _QUOTED) -> str:
    """`text` as one printable line of at most `most` characters, and three dots."""
    line = " ".join(printable(text).split())
    return line if len(line) <= most else f"{line[:most]}..."


def _quote(tail: Sequence[str], most_lines: int) -> str:
    """The last lines that have anything in them."""
    lines = [line for text in tail if (line := " ".join(printable(text).split()))]
    kept = [short(line, _QUOTED if most_lines == 1 else _QUOTED // 2) for line in lines[-most_lines:]]
    return " | ".join(kept)
