"""`python -m autotune`: the one place where errors become a line and an exit code."""

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[0]  # the working directory, whose modules must not be taken for those imported below

from autotune.core.linux import require_linux

require_linux("autotune")

import errno
import io
import os
from collections.abc import Callable, Sequence

from pydantic import ValidationError
from typer import Typer

from autotune.core import secrecy, units
from autotune.core.errors import InputError, SearchAborted, UnconfirmedError, printable
from autotune.trials import failures

_NAME = "autotune"  # however it was called: the shell completes it by that
EXIT_ABORTED = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130
_LONGEST_LINE = 2000
_UNUSABLE = {errno.ENAMETOOLONG, errno.ELOOP, errno.EISDIR}
_UNWRITABLE = failures.OUR_DISK_ERRNOS | {errno.EACCES, errno.EPERM}


def main(
    arguments: Sequence[str] | None = None, load: Callable[[], Typer] | None = None, name: str = _NAME
) -> int:
    """Runs the command line called `name` and returns its exit code. An unexpected error keeps its traceback.

    `load` returns its commands; the default are the tuner's.
    """
    if arguments is None:
        _say_in_any_encoding()
    return _flushed(_run(arguments, load or _commands, name))


def _say_in_any_encoding() -> None:
    """A terminal that has no sign for something is shown `?`: nothing ends of that."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _commands() -> Typer:
    from autotune.cli.app import app  # noqa: PLC0415 - importing it takes a while, and may be interrupted

    return app


def _run(arguments: Sequence[str] | None, load: Callable[[], Typer], name: str) -> int:
    try:
        return int(load()(args=arguments, prog_name=name, standalone_mode=False) or 0)
    except (SearchAborted, UnconfirmedError) as error:
        return _say(error, EXIT_ABORTED)
    except InputError as error:
        return _say(error, EXIT_BAD_INPUT)
    except KeyboardInterrupt:
        return _say("interrupted", EXIT_INTERRUPTED)
    except Exception as error:
        if hasattr(error, "format_message"):  # a usage error of typer's, whose class is not public
            return _say(f"{error.format_message()}{_given(error)}", EXIT_BAD_INPUT)
        if fault := path_fault(error):
            return _say(fault, EXIT_BAD_INPUT)
        if damage := failures.study_damage(error):
            hint = "what can be rebuilt of it, this rebuilds: python -m autotune recover SESSION"
            return _say(f"{damage}; {hint}", EXIT_BAD_INPUT)
        if fault := disk_fault(error):
            return _say(f"{fault}; nothing is lost: fix that and run the command again", EXIT_BAD_INPUT)
        raise


def path_fault(error: Exception) -> str | None:
    """Returns why no file can be at a path; None if the error is about something else."""
    if isinstance(error, OSError) and error.errno in _UNUSABLE:
        return f"{error.strerror}: {error.filename2 or error.filename}"
    is_loop = isinstance(error, RuntimeError) and str(error).startswith("Symlink loop")  # pathlib's own
    return str(error) if is_loop else None


def disk_fault(error: BaseException) -> str | None:
    """Returns why the disk cannot be used; None if the error is about something else."""
    return failures.study_fault(error) or failures.disk_fault(error, _UNWRITABLE)


def _given(error: Exception) -> str:
    """The value that a usage error is about, where it has one."""
    if isinstance(error.__cause__, ValidationError):
        return f": got {units.shown(error.__cause__.errors()[0]['input'])}"
    return ""


def _flushed(code: int) -> int:
    """The exit code, once all output is written: its disk may be full, too."""
    try:
        sys.stdout.flush()
    except OSError as error:
        # Or else Python tries again on its way out, complains, and changes the exit code.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if code != EXIT_BAD_INPUT:  # or else it was said already
            return _say(f"standard output: cannot be written: {error.strerror}", EXIT_BAD_INPUT)
    return code


def _say(message: object, code: int) -> int:
    text = " ".join(printable(secrecy.hidden(str(message), os.environ)).split())
    if len(text) > _LONGEST_LINE:
        text = f"{text[:_LONGEST_LINE]}..."
    print(f"autotune: {text}" if text else "", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
