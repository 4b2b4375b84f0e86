"""Turns the exit of a command into an exception with a one-line reason. Pure."""

import builtins
import re
import signal
from collections.abc import Sequence

from autotune.core.errors import printable, without_trace
from autotune.inside.messages import ScriptError

_QUOTED = 100  # characters of the output in a reason
_LINES_QUOTED = 3
_LINES_OF_MEMORY = 20  # C++ code reports a failed allocation shortly before it aborts
_TRACEBACK = "Traceback (most recent call last):"
_RAISED = re.compile(r"([A-Za-z_][\w.]*)(?:: (.*))?")
_ERRNO = re.compile(r"\[Errno (\d+)\] ([^:]*)(?:: '(.*)')?$")
_BY_SHELLS = 128  # a shell exits with this plus the signal that ended its command
_KILLED = 9
# Errors of C++ code, the loader and the system: only their text tells if memory ran out.
_JUDGED_BY_TEXT = (RuntimeError, SystemError, ImportError, OSError)
_JUDGED_BY_TEXT_IN = {"torch", "jax", "jaxlib"}  # packages whose errors are such, too


class CommandError(RuntimeError):
    """Failure of a command: how it ended, or what it did not do."""


class ResumeError(CommandError):
    """A resumed command failed before its first step, because of its checkpoint unless it `was_killed`."""

    def __init__(self, error: Exception, code: int) -> None:
        super().__init__(f"while continuing from its checkpoint: {describe_error(error)}")
        self.__cause__ = error
        self.was_killed = not 0 < code < _BY_SHELLS


class OutputError(RuntimeError):
    """A line of a command's output, as a cause of its failure."""


def exit_error(code: int, pid: int, hook_error: ScriptError | None, tail: Sequence[str]) -> Exception:
    """Returns the error for an exit `code`, negative for a signal; the script's own exception, if known."""
    if code in {-_KILLED, _BY_SHELLS + _KILLED}:
        return without_trace(CommandError(f"command (pid {pid}) is killed by signal: Killed"))
    if hook_error := hook_error or _raised_in(tail):
        return without_trace(_as_raised(hook_error))
    how = f"exited with {code}"
    if code < 0:
        how = f"killed by {signal_name(-code)}"
    elif _BY_SHELLS < code <= _BY_SHELLS + 64:
        how += f" ({signal_name(code - _BY_SHELLS)})"
    error = CommandError(": ".join(filter(None, (how, _quote(tail, 1)))))
    cause: OutputError | None = None
    for line in tail[-_LINES_OF_MEMORY:]:  # one of them may say that memory ran out
        of_line = OutputError(line)
        of_line.__cause__, cause = cause, of_line
    error.__cause__ = cause
    return without_trace(error)


def describe_error(error: Exception) -> str:
    """Returns the text of `error`, preceded by the name of its type if the script raised it."""
    return str(error) if isinstance(error, CommandError) else f"{type(error).__name__}: {error}"


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def _raised_in(tail: Sequence[str]) -> ScriptError | None:
    """Returns the exception of the last traceback in the output; None if there is none."""
    starts = [i for i, line in enumerate(tail) if line.strip().endswith(_TRACEBACK)]
    for line in tail[starts[-1] + 1 :] if starts else ():
        if line[:1].strip() and (match := _RAISED.fullmatch(line.strip())):
            return ScriptError(match[1], match[2] or "")
    return None


def _as_raised(raised: ScriptError) -> Exception:
    """Returns an exception of the same name and text, to be classified as if it had been raised here."""
    module, _, name = raised.type.rpartition(".")
    known = getattr(builtins, name, None) if module in {"", "builtins"} else None
    known = known if isinstance(known, type) else Exception
    if issubclass(known, OSError) and (match := _ERRNO.match(raised.message)):
        return OSError(int(match[1]), match[2], *([match[3]] if match[3] else []))
    is_judged_by_text = issubclass(known, _JUDGED_BY_TEXT) or module.partition(".")[0] in _JUDGED_BY_TEXT_IN
    kind: type[Exception] = type(name, (RuntimeError if is_judged_by_text else Exception,), {})
    return kind(raised.message)


def missing_output_error(lacks: Sequence[str], tail: Sequence[str]) -> CommandError:
    """Returns the error for a command that succeeded but `lacks` output; quotes its last lines."""
    quote = _quote(tail, _LINES_QUOTED)
    output = f"the last lines of its output: {quote}" if quote else "it printed nothing"
    return CommandError("; ".join([*lacks, output]))


def short(text: str, most: int = _QUOTED) -> str:
    """Returns `text` as one printable line, cut with three dots after `most` characters."""
    line = " ".join(printable(text).split())
    return line if len(line) <= most else f"{line[:most]}..."


def _quote(tail: Sequence[str], most_lines: int) -> str:
    width = _QUOTED if most_lines == 1 else _QUOTED // 2
    lines = [line for text in tail if (line := short(text, width))]
    return " | ".join(lines[-most_lines:])
