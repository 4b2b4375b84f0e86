"""Views of a script's directory, in which a trial may write without changing the original.

A view has the same directories, copies of small files, and links to large ones. The directories above are
there too, so that paths such as `../data` lead to the same files.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from autotune.core.errors import InputError
from autotune.inside.site import autotune_wire as wire

_COPIED_BYTES = 2**20  # smaller files are copied, because a script may write to them in place
_LEVELS = 3  # directories above the script's whose entries the view has


def make(directory: Path, place: Path) -> Path:
    """Makes or completes a view of `directory` below `place`; raises InputError if it has too many files."""
    directory = directory.resolve()
    view = place / directory.relative_to("/")
    view.mkdir(parents=True, exist_ok=True)
    below, inside = directory, view
    for above in directory.parents[:_LEVELS]:
        for sibling in _entries(above):
            if sibling != below and not os.path.lexists(link := inside.parent / sibling.name):
                link.symlink_to(sibling)
        below, inside = above, inside.parent
    for count, (source, made) in enumerate(_files(directory, view, place.resolve())):
        if count > wire.MOST_FILES:
            rule = f"more than {wire.MOST_FILES:,} files: start the search where the script is"
            raise InputError(f"{directory}: {rule}")
        if os.path.lexists(made):
            continue
        if source.is_file() and source.stat().st_size <= _COPIED_BYTES:
            shutil.copy2(source, made)
        elif source.exists() and not source.is_fifo() and not source.is_socket():
            made.symlink_to(source.resolve())
    return view


def _entries(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except OSError:  # not ours to read
        return []


def _files(directory: Path, view: Path, left_out: Path) -> Iterator[tuple[Path, Path]]:
    """Yields the files below `directory` with their places in the view; creates the view's directories."""
    for entry in _entries(directory):
        made = view / entry.name
        if is_link(entry) or not entry.is_dir():
            yield entry, made
        elif entry not in (left_out, *left_out.parents):
            made.mkdir(exist_ok=True)
            yield from _files(entry, made, left_out)


def is_link(entry: Path) -> bool:
    """Returns True if a view has only a link to a directory, until a script changes something below it."""
    return entry.is_symlink() or entry.name in wire.ALWAYS_LINKED
