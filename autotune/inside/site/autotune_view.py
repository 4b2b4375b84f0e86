"""Keeps a script's writes inside its view, where a linked file that is opened for writing becomes a copy."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Any

import autotune_wire
from autotune_imports import After, replace


def arm(after: After) -> None:
    root = os.path.realpath(os.environ[autotune_wire.VIEW])

    def listen(event: str, args: Any) -> None:
        if event == "open" and isinstance(args[0], str):
            mode, flags = args[1] or "", args[2] or 0
            if set(mode) & set("wax+") or flags & (os.O_WRONLY | os.O_RDWR):
                detach(args[0], root, keeps=mode[:1] in ("a", "r") or not (mode or flags & os.O_TRUNC))

    def save(save: Any, obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
        """Saves by torch's function, whose writer opens files without telling Python."""
        if isinstance(f, (str, os.PathLike)):
            detach(os.fspath(f), root, keeps=False)
        return save(obj, f, *args, **kwargs)

    def watch_saves(torch: Any) -> None:
        replace(torch, "save", save)
        torch.serialization.save = torch.save

    sys.addaudithook(listen)
    after.do("torch", watch_saves)


def detach(path: str, root: str, *, keeps: bool) -> None:
    """Replaces a link below `root` with a copy of the file; only removes it if the content is not kept."""
    if not os.path.islink(path) or not os.path.realpath(os.path.dirname(path) or ".").startswith(root):  # noqa: PTH114, PTH120
        return
    target = os.path.realpath(path)
    os.unlink(path)  # noqa: PTH108 - a script may have no pathlib yet
    if keeps and os.path.isfile(target):  # noqa: PTH113
        shutil.copy2(target, path)
