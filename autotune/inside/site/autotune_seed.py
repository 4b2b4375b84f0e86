"""Another seed for a script that takes none: an offset to what it seeds its process's generators with."""

from __future__ import annotations

import functools
import threading
from typing import Any

_SEEDS = 2**32  # NumPy takes no more
_thread = threading.local()  # `is_seeding`: it is within a call whose seed was moved


def add(module: Any, name: str, offset: int) -> None:
    """Makes the function `name` of a module, which takes a seed first, take it with `offset` added.

    A call made within another such one passes through as it is: torch's seeds the GPUs with its own.
    """
    original = getattr(module, name)

    @functools.wraps(original)
    def seeded(*args: Any, **kwargs: Any) -> Any:
        if getattr(_thread, "is_seeding", False):
            return original(*args, **kwargs)
        if args and isinstance(args[0], int):
            args = ((args[0] + offset) % _SEEDS, *args[1:])
        elif isinstance(kwargs.get("seed"), int):
            kwargs["seed"] = (kwargs["seed"] + offset) % _SEEDS
        _thread.is_seeding = True
        try:
            return original(*args, **kwargs)
        finally:
            _thread.is_seeding = False

    setattr(module, name, seeded)
