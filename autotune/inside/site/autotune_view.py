"""Keeps a script's writes inside its view: what is a link there becomes a copy before it is changed."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from contextlib import suppress
from typing import Any

import autotune_wire
from autotune_imports import After, replace

# Python's audit events of changes to a directory.
_CHANGES = frozenset({"os.mkdir", "os.remove", "os.rename", "os.rmdir", "shutil.rmtree"})
_refused: set[str] = set()  # links that stay


def arm(after: After) -> None:
    root = os.path.realpath(os.environ[autotune_wire.VIEW])

    def listen(event: str, args: Any) -> None:
        if event == "open" and isinstance(args[0], str):
            mode, flags = args[1] or "", args[2] or 0
            if set(mode) & set("wax+") or flags & (os.O_WRONLY | os.O_RDWR):
                detach(args[0], root, keeps=mode[:1] in ("a", "r") or not (mode or flags & os.O_TRUNC))
        # The last argument is the open directory that a path is relative to; `rmtree` has it from 3.11 on.
        elif event in _CHANGES and (len(args) == 1 or args[-1] in (-1, None)):
            for path in args[: 1 + (event == "os.rename")]:
                if isinstance(path, (str, os.PathLike)):
                    unlink_directories(os.fspath(path), root, itself=event == "shutil.rmtree")

    def save(save: Any, *args: Any, **kwargs: Any) -> Any:
        """Saves by a function whose writer opens files without telling Python."""
        for path in (*args[1:2], kwargs.get("f"), kwargs.get("filename")):
            if isinstance(path, (str, os.PathLike)):
                detach(os.fspath(path), root, keeps=False)
        return save(*args, **kwargs)

    def watch_saves(torch: Any) -> None:
        replace(torch, "save", save)
        torch.serialization.save = torch.save
        replace(torch.jit, "save", save)

    sys.addaudithook(listen)
    after.do("torch", watch_saves)
    after.do("safetensors.torch", lambda module: replace(module, "save_file", save))


def detach(path: str, root: str, *, keeps: bool) -> None:
    """Replaces a link below `root` with a copy of the file; only removes it if the content is not kept."""
    unlink_directories(path, root)
    if not os.path.islink(path) or not os.path.realpath(os.path.dirname(path) or ".").startswith(root):  # noqa: PTH114, PTH120
        return
    target = os.path.realpath(path)
    with suppress(FileNotFoundError):  # another process does the same
        if keeps and os.path.isfile(target):  # noqa: PTH113
            shutil.copy2(target, copy := _beside(path))
            os.replace(copy, path)  # noqa: PTH105 - a script may have no pathlib yet
        else:
            os.unlink(path)  # noqa: PTH108


def unlink_directories(path: str, root: str, *, itself: bool = False) -> None:
    """Makes linked directories above `path` real, with links to their files; `path` too if `itself`."""
    here = os.path.abspath(path)  # noqa: PTH100
    if not here.startswith(f"{root}{os.sep}"):
        return
    place, (*above, last) = root, here[len(root) + 1 :].split(os.sep)  # noqa: PTH206
    for name in [*above, last] if itself else above:
        place = os.path.join(place, name)  # noqa: PTH118
        if os.path.islink(place):  # noqa: PTH114
            if name not in autotune_wire.ALWAYS_LINKED and place not in _refused:
                _copy_links(place)
            if os.path.islink(place):  # noqa: PTH114 - what is behind it is not the view's
                return


def _copy_links(link: str) -> None:
    """Replaces a linked directory with one of links to its files, unless it has too many of them."""
    target, made, count = os.path.realpath(link), _beside(link), 0
    try:
        for directory, _, names in os.walk(target):
            count += 1 + len(names)
            if count > autotune_wire.MOST_FILES:  # of data
                _refused.add(link)
                return
            inside = os.path.normpath(os.path.join(made, os.path.relpath(directory, target)))  # noqa: PTH118
            os.mkdir(inside)  # noqa: PTH102 - a script may have no pathlib yet
            for entry in os.scandir(directory):
                if not entry.is_dir(follow_symlinks=False):
                    os.symlink(entry.path, os.path.join(inside, entry.name))  # noqa: PTH118, PTH211
        if count:  # else it is a file
            os.unlink(link)  # noqa: PTH108
            os.rename(made, link)  # noqa: PTH104
    except OSError:  # another process does the same, or there is no room
        _refused.add(link)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _beside(path: str) -> str:
    return f"{path}.{os.getpid()}.{threading.get_ident()}"
