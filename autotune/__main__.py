"""`python -m autotune`: the one place where errors become a line and an exit code."""

import errno
import sqlite3
import sys
from collections.abc import Sequence

from pydantic import ValidationError

from autotune import failures
from autotune.errors import InputError, SearchAborted

EXIT_ABORTED = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130
_UNWRITABLE = failures.DISK_ERRNOS | {errno.EACCES, errno.EPERM}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code. An unexpected error keeps its traceback."""
    from autotune.cli import app  # noqa: PLC0415 - importing it takes a while, and may be interrupted

    try:
        return int(app(args=arguments, standalone_mode=False) or 0)
    except SearchAborted as error:
        return _say(error, EXIT_ABORTED)
    except InputError as error:
        return _say(error, EXIT_BAD_INPUT)
    except KeyboardInterrupt:
        return _say("interrupted", EXIT_INTERRUPTED)
    except Exception as error:
        if hasattr(error, "format_message"):  # a usage error of typer's, whose class is not public
            return _say(f"{error.format_message()}{_given(error)}", EXIT_BAD_INPUT)
        if fault := disk_fault(error):
            return _say(f"{fault}; the session is intact: free space, then resume it", EXIT_BAD_INPUT)
        raise


def disk_fault(error: BaseException) -> str | None:
    """What is wrong with the disk, when that is what `error` is about."""
    for cause in failures.chain(error):
        if isinstance(cause, sqlite3.OperationalError) and ("full" in str(cause) or "readonly" in str(cause)):
            return f"the session's study cannot be written: {cause}"
    return failures.disk_fault(error, _UNWRITABLE)


def _given(error: Exception) -> str:
    """The value that a usage error is about, where it has one."""
    if isinstance(error.__cause__, ValidationError):
        return f": got {error.__cause__.errors()[0]['input']!r}"
    return ""


def _say(message: object, code: int) -> int:
    text = " ".join(str(message).split())
    print(f"autotune: {text}" if text else "", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
