"""Replaces arguments of a script's loaders and optimizers with those of the search."""

from __future__ import annotations

import functools
import inspect
import json
import os
from typing import Any, Callable, Mapping  # noqa: UP035 - for Python 3.8

import autotune_wire
from autotune_imports import replace

# Arguments that only a loader with workers may have, and their defaults.
_OF_WORKERS = {
    "persistent_workers": False,
    "prefetch_factor": None,
    "timeout": 0,
    "multiprocessing_context": None,
}
# Arguments that shape batches: an evaluation keeps its own, to stay comparable.
_OF_TRAINING = ("batch_size", "drop_last", "shuffle")
Arguments = Mapping[str, Any]
# (arguments of the search, arguments of the script) -> arguments to pass on
Choice = Callable[[Arguments, Arguments], Arguments]


class Overrides:
    """The search's arguments, from the environment, by the object that takes them: `{"loader": {...}}`.

    The tuner is told the names of those that were applied: `loader.num_workers`.
    """

    def __init__(self, wire: autotune_wire.Wire) -> None:
        self._wire = wire
        self._values: Mapping[str, Mapping[str, Any]] = json.loads(
            os.environ.get(autotune_wire.OVERRIDES) or "{}"
        )
        self._taken: set[str] = set()
        self.ratio: float | None = None  # of the first optimizer's learning rate to the script's

    def get(self, name: str) -> Mapping[str, Any]:
        """Returns the arguments for `name`, {} if there are none."""
        return self._values.get(name) or {}

    def tell(self, name: str, taken: Any) -> None:
        """Reports that an object called `name` has taken these arguments."""
        new = {f"{name}.{key}" for key in taken} - self._taken
        if new:
            self._taken |= new
            self._wire.tell({"taken": sorted(new)})


def attach(torch: Any, overrides: Overrides) -> None:
    """Wraps the constructors of loaders and optimizers for which there are arguments."""
    if overrides.get("loader"):
        data = torch.utils.data
        replace_init(data.DataLoader, "loader", overrides, functools.partial(_loader, data))
    if overrides.get("optimizer"):
        replace(torch.optim.Optimizer, "__init__", functools.partial(_make_optimizer, overrides))


def replace_init(made: Any, name: str, overrides: Overrides, choose: Choice) -> None:
    """Makes the class `made` take the search's arguments for `name`, if `choose` selects them."""
    takes = inspect.signature(made.__init__)

    def make(init: Any, /, *args: Any, **kwargs: Any) -> None:
        try:
            given = takes.bind(*args, **kwargs)
        except TypeError:  # the script's own mistake: let its call report it
            init(*args, **kwargs)
            return
        known = {key: value for key, value in overrides.get(name).items() if key in takes.parameters}
        chosen = choose(known, given.arguments)
        given.arguments.update(chosen)
        init(*given.args, **given.kwargs)
        overrides.tell(name, known.keys() & chosen.keys())

    replace(made, "__init__", make)


def _loader(data: Any, known: Arguments, given: Arguments) -> Arguments:
    """Selects a loader's arguments: batch options only for training, worker options only with workers."""
    is_of_training = _is_of_training(given, data)
    taken = {name: value for name, value in known.items() if is_of_training or name not in _OF_TRAINING}
    if taken.get("num_workers", given.get("num_workers", 0)):
        return taken
    return {**taken, **{name: none for name, none in _OF_WORKERS.items() if name in {*given, *taken}}}


def _is_of_training(given: Arguments, data: Any) -> bool:
    """Returns True for a training loader: one that forms random batches."""
    if given.get("batch_sampler") is not None or given.get("batch_size", 1) is None:
        return False
    sampler = given.get("sampler")
    if sampler is None or isinstance(sampler, data.SequentialSampler):
        return bool(given.get("shuffle"))
    return bool(getattr(sampler, "shuffle", True))  # a distributed sampler says whether it shuffles


def _make_optimizer(overrides: Overrides, init: Any, self: Any, params: Any, defaults: Any) -> None:
    """Applies the optimizer's arguments; all learning rates are scaled as in the first optimizer."""
    taken = {name: value for name, value in overrides.get("optimizer").items() if name in defaults}
    wanted = taken.get("lr")
    if wanted is not None:
        old = defaults["lr"]
        if overrides.ratio is None:
            overrides.ratio = wanted / float(old) if old else 1.0
        taken["lr"] = float(old) * overrides.ratio if old else wanted
        params = [_scaled(group, overrides.ratio) for group in params]
    init(self, params, {**defaults, **taken})
    overrides.tell("optimizer", taken)


def _scaled(group: Any, ratio: float) -> Any:
    """Returns a parameter group with its own learning rate, if it has one, multiplied by `ratio`."""
    has_own = isinstance(group, dict) and group.get("lr") is not None
    return {**group, "lr": group["lr"] * ratio} if has_own else group
