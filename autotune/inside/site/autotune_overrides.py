"""Arguments that a search puts in place of a script's own, wherever it makes a loader or an optimizer."""

from __future__ import annotations

import functools
import inspect
import json
import os
from typing import Any, Callable, Mapping  # noqa: UP035 - for Python 3.8

import autotune_wire

_OF_WORKERS = {"persistent_workers": False, "prefetch_factor": None}  # what a loader without workers takes


class Overrides:
    """The arguments that the environment names, by what they are arguments of: `{"loader": {...}}`.

    The tuner is told of those that something has taken, by their names: `loader.num_workers`.
    """

    def __init__(self, wire: autotune_wire.Wire) -> None:
        self._wire = wire
        self._values: Mapping[str, Mapping[str, Any]] = json.loads(
            os.environ.get(autotune_wire.OVERRIDES) or "{}"
        )
        self._taken: set[str] = set()

    def of(self, name: str) -> Mapping[str, Any]:
        """The arguments of what is called `name`; empty where there are none."""
        return self._values.get(name) or {}

    def tell(self, name: str, taken: Any) -> None:
        """Something that is called `name` has taken these arguments."""
        new = {f"{name}.{key}" for key in taken} - self._taken
        if new:
            self._taken |= new
            self._wire.tell({"taken": sorted(new)})


def attach(torch: Any, overrides: Overrides) -> None:
    """Wraps what makes loaders and optimizers, where there is something to be put into them."""
    if overrides.of("loader"):
        loader = torch.utils.data.DataLoader
        loader.__init__ = _around_loader(loader.__init__, torch.utils.data, overrides)
    if overrides.of("optimizer"):
        optimizer = torch.optim.Optimizer
        optimizer.__init__ = _around_optimizer(optimizer.__init__, overrides)


def _around_loader(init: Callable[..., None], data: Any, overrides: Overrides) -> Callable[..., None]:
    takes = inspect.signature(init)

    @functools.wraps(init)
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            given = takes.bind(self, *args, **kwargs)
        except TypeError:  # the script's own mistake: it is to be told by its name
            init(self, *args, **kwargs)
            return
        is_shuffling = _shuffles(given.arguments, data)
        own = {name: v for name, v in overrides.of("loader").items() if name in takes.parameters}
        taken = {name: v for name, v in own.items() if name != "batch_size" or is_shuffling}
        given.arguments.update(_going_together(given.arguments, taken))
        init(*given.args, **given.kwargs)
        overrides.tell("loader", taken)

    return made


def _shuffles(given: Mapping[str, Any], data: Any) -> bool:
    """Whether a loader draws its batches at random: one to train with, whose batch is to be another one."""
    if given.get("batch_sampler") is not None or given.get("batch_size", 1) is None:
        return False
    sampler = given.get("sampler")
    return bool(given.get("shuffle")) or (
        sampler is not None and not isinstance(sampler, data.SequentialSampler)
    )


def _going_together(given: Mapping[str, Any], taken: Mapping[str, Any]) -> Mapping[str, Any]:
    """`taken`, and without workers nothing that only a loader with workers can have."""
    workers = taken.get("num_workers", given.get("num_workers", 0))
    of_workers = {} if workers else {name: v for name, v in _OF_WORKERS.items() if name in {*given, *taken}}
    return {**taken, **of_workers}


def _around_optimizer(init: Callable[..., None], overrides: Overrides) -> Callable[..., None]:
    """Learning rates keep their ratio to the first optimizer's: groups of its own, and other optimizers'."""
    ratio: list[float] = []

    @functools.wraps(init)
    def made(self: Any, params: Any, defaults: Any) -> None:
        taken = {name: value for name, value in overrides.of("optimizer").items() if name in defaults}
        wanted = taken.get("lr")
        if wanted is not None:
            old = defaults["lr"]
            ratio[:] = ratio or [wanted / float(old) if old else 1.0]
            taken["lr"] = float(old) * ratio[0] if old else wanted
            params = [_scaled(group, ratio[0]) for group in params]
        init(self, params, {**defaults, **taken})
        overrides.tell("optimizer", taken)

    return made


def _scaled(group: Any, ratio: float) -> Any:
    """A group of parameters with its own learning rate, where it has one, `ratio` times as high."""
    has_own = isinstance(group, dict) and group.get("lr") is not None
    return {**group, "lr": group["lr"] * ratio} if has_own else group
