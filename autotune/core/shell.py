"""Quoting for commands that are printed for the user to copy."""

import os
import shlex
import sys
from pathlib import Path


def pip_install(what: str) -> str:
    """Returns the command that installs `what` for this Python, whichever Python the shell would choose."""
    return f"{shlex.quote(sys.executable)} -m pip install {what}"


def quoted(path: Path | str) -> str:
    """Returns `path` quoted as one word of a command that cannot be read as an option."""
    text = str(path)
    return word(f"./{text}" if text.startswith("-") else text)


def word(text: str) -> str:
    """Returns `text` quoted as one word of a command on one printable line; it may be an option."""
    if text.isprintable() and "  " not in text and text == text.strip():  # messages collapse spaces
        return shlex.quote(text)
    # bash, zsh and POSIX since 2024 read this.
    return "$'" + "".join(map(_escaped, os.fsencode(text))) + "'"


def _escaped(byte: int) -> str:
    character = chr(byte)
    is_plain = character.isascii() and character.isprintable() and character not in "\\' "
    return character if is_plain else f"\\x{byte:02x}"
