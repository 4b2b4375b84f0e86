"""Atomic writes, safe reads and disk usage."""

import errno
import os
import stat
import sys
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path

from autotune.core.errors import InputError


def read(file: Path) -> str:
    """Returns a regular file's text; raises OSError for any other: a pipe blocks, a device may never end."""
    with open(file, encoding="utf-8", opener=_without_waiting) as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise OSError(errno.EINVAL, "is not a regular file", str(file))
        return stream.read()


def _without_waiting(path: str, flags: int) -> int:
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    return descriptor


def write(file: Path, text: str, *, is_ours: bool = False) -> None:
    """Writes `text` to `file`; raises InputError if that cannot be done, as for a pipe without a reader.

    A link or pipe that somebody has put in place of a file of `ours` is replaced.
    """
    try:
        if is_ours:
            write_whole(file, text)
        elif file.exists() and not file.is_file():  # a pipe or a terminal
            with open(file, "w", encoding="utf-8", opener=_without_waiting) as stream:
                stream.write(text)
        else:
            write_whole(file.resolve(), text)
    except OSError as error:
        raise InputError(f"{file}: cannot be written: {error.strerror}") from None


def write_to_stdout(text: str) -> None:
    """Writes `text` to standard output in UTF-8, whatever the locale."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode(errors="replace"))
    else:  # a stand-in, such as a notebook's, which takes any character
        sys.stdout.write(text)


def write_whole(file: Path, text: str) -> None:
    """Replaces `file` atomically and on disk; after a kill, a power cut or an OSError it is old or new."""
    temporary = file.with_name(f"{file.name}.tmp")
    try:
        temporary.unlink(missing_ok=True)  # left by a kill; or a link or pipe that somebody has put there
        with temporary.open("x", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(file)
        descriptor = os.open(file.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError:
        with suppress(OSError):  # it takes disk space; on a read-only disk it stays
            temporary.unlink(missing_ok=True)
        raise


def disk_usage_bytes(directory: Path) -> int:
    """Returns the disk usage of the files below `directory`, without files that vanish during the count."""
    total = 0
    for place, _, names in os.walk(directory):
        for name in names:
            with suppress(OSError):  # deleted since it was listed
                total += os.lstat(f"{place}/{name}").st_blocks * 512  # no Path: there are tens of thousands
    return total
