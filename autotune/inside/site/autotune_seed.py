"""Another seed for a script that takes none: an offset to what it seeds its process's generators with."""

from __future__ import annotations

import functools
from typing import Any

_SEEDS = 2**32  # NumPy takes no more


def add(module: Any, name: str, offset: int) -> None:
    """Makes the function `name` of a module, which takes a seed first, take it with `offset` added."""
    original = getattr(module, name)

    @functools.wraps(original)
    def seeded(*args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], int):
            args = ((args[0] + offset) % _SEEDS, *args[1:])
        elif isinstance(kwargs.get("seed"), int):
            kwargs["seed"] = (kwargs["seed"] + offset) % _SEEDS
        return original(*args, **kwargs)

    setattr(module, name, seeded)
