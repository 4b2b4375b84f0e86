"""Changes the seed of a script without a seed argument, by an offset to each call that seeds."""

from __future__ import annotations

import functools
import threading
from typing import Any

_SEEDS = 2**32  # NumPy's limit
_thread = threading.local()  # `is_seeding`: inside a call whose seed was shifted


def add(module: Any, name: str, offset: int) -> None:
    """Makes the function `name` of a module add `offset` to the seed, its first argument.

    A call within such a call is left alone: torch's seeds the GPUs with the shifted seed.
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
