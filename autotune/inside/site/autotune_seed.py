"""Changes the seed of a script without a seed argument: adds an offset in each call that seeds."""

from __future__ import annotations

import functools
import os
import threading
from typing import Any

import autotune_wire
from autotune_imports import After, replace

_SEEDS = 2**32  # NumPy's limit
_thread = threading.local()  # `is_seeding`: inside a call whose seed was shifted


def arm(after: After) -> None:
    """Shifts the seeds of torch, NumPy and Python by the offset in AUTOTUNE_SEED; 0 leaves them alone."""
    offset = int(os.environ[autotune_wire.SEED] or 0)
    if offset:
        after.do("torch", functools.partial(_shift_torch, offset))
        for module in ("random", "numpy.random"):
            after.do(module, functools.partial(add, name="seed", offset=offset))


def _shift_torch(offset: int, torch: Any) -> None:
    add(torch, "manual_seed", offset)
    for name in ("manual_seed", "manual_seed_all"):  # scripts may call these too
        add(torch.cuda, name, offset)
    torch.random.manual_seed = torch.manual_seed
    torch.manual_seed(0)  # gives a script that seeds nothing a fixed seed


def add(module: Any, name: str, offset: int) -> None:
    """Makes the function `name` of a module add `offset` to the seed, its first argument."""

    def seeded(original: Any, *args: Any, **kwargs: Any) -> Any:
        if getattr(_thread, "is_seeding", False):  # torch seeds the GPUs, with the shifted seed
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

    replace(module, name, seeded)
