"""`python -m autotune`: the one place where errors become a line and an exit code."""

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[0]  # the working directory, whose modules must not be taken for those imported below

from autotune.core.linux import require_linux

require_linux("autotune")

import io
import os
from collections.abc import Callable, Sequence

from pydantic import ValidationError
from typer import Typer

from autotune.core import secrecy, units
from autotune.core.errors import printable
from autotune.sessions import faults

_LONGEST_LINE = 2000


def main(
    arguments: Sequence[str] | None = None, load: Callable[[], Typer] | None = None, name: str = "autotune"
) -> int:
    """Runs the command line called `name` and returns its exit code. An unexpected error keeps its traceback.

    `load` returns the commands, by default the tuner's.
    """
    if arguments is None:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")  # `?` for characters that the terminal's encoding lacks
    code = _run(arguments, load or _commands, name)
    try:
        sys.stdout.flush()
    except OSError as error:
        # Otherwise Python tries again at exit, complains, and changes the exit code.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if code != faults.EXIT_BAD_INPUT:  # otherwise the error has been reported
            return _say(f"standard output: cannot be written: {error.strerror}", faults.EXIT_BAD_INPUT)
    return code


def _commands() -> Typer:
    from autotune.cli.app import app  # noqa: PLC0415 - importing it takes a while, and may be interrupted

    return app


def _run(arguments: Sequence[str] | None, load: Callable[[], Typer], name: str) -> int:
    try:
        return int(load()(args=arguments, prog_name=name, standalone_mode=False) or 0)
    except (Exception, KeyboardInterrupt) as error:
        if hasattr(error, "format_message"):  # a usage error of typer's, whose class is not public
            cause, got = error.__cause__, ""
            if isinstance(cause, ValidationError):
                got = f", got {units.quote(cause.errors()[0]['input'])}"
            return _say(f"{error.format_message()}{got}", faults.EXIT_BAD_INPUT)
        if (known := faults.deliberate(error)) is None:
            raise
        return _say(known, faults.exit_code(known))


def _say(message: object, code: int) -> int:
    text = " ".join(printable(secrecy.hide_secrets(str(message), os.environ)).split())
    if len(text) > _LONGEST_LINE:
        text = f"{text[:_LONGEST_LINE]}..."
    print(f"autotune: {text}" if text else "", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
