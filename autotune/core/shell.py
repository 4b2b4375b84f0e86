"""Paths as a shell reads them, in commands that are printed."""

import os
import shlex
import sys
from pathlib import Path

_DOUBLE = "  "  # a message is one line of words with one space between them


def pip_install(what: str) -> str:
    """The command that installs `what` for this Python, whichever one the shell would take."""
    return f"{shlex.quote(sys.executable)} -m pip install {what}"


def quoted(path: Path | str) -> str:
    """`path` as one word of a command, and no option, on one line that can be printed and copied."""
    text = str(path)
    return word(f"./{text}" if text.startswith("-") else text)


def word(text: str) -> str:
    """`text` as one word of a command, which may be an option, on one line that can be printed and copied.

    What cannot be shown is written as bash and zsh, and POSIX since 2024, read it: $'...'.
    """
    if text.isprintable() and _DOUBLE not in text and text == text.strip():
        return shlex.quote(text)
    return "$'" + "".join(map(_escaped, os.fsencode(text))) + "'"


def _escaped(byte: int) -> str:
    character = chr(byte)
    is_plain = character.isascii() and character.isprintable() and character not in "\\' "
    return character if is_plain else f"\\x{byte:02x}"
