"""Arguments that a search puts in place of a script's own, wherever it makes a loader or an optimizer."""

from __future__ import annotations

import functools
import inspect
import json
import os
from typing import Any, Callable, Mapping  # noqa: UP035 - for Python 3.8

import autotune_wire

# What only a loader with workers can have.
_OF_WORKERS = {
    "persistent_workers": False,
    "prefetch_factor": None,
    "timeout": 0,
    "multiprocessing_context": None,
}
# What batches are made of: an evaluation keeps its own, or it would not be comparable.
_OF_TRAINING = ("batch_size", "drop_last", "shuffle")
Arguments = Mapping[str, Any]
# `(arguments of the search, those of the script)` -> those that are taken, in the form to pass on
Choice = Callable[[Arguments, Arguments], Arguments]


class Overrides:
    """The arguments that the environment names, by what they are arguments of: `{"loader": {...}}`.

    The tuner is told the names of those that were taken: `loader.num_workers`.
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
        loader, data = torch.utils.data.DataLoader, torch.utils.data
        loader.__init__ = around_init(loader.__init__, "loader", overrides, functools.partial(_loader, data))
    if overrides.of("optimizer"):
        optimizer = torch.optim.Optimizer
        optimizer.__init__ = _around_optimizer(optimizer.__init__, overrides)


def around_init(
    init: Callable[..., None], name: str, overrides: Overrides, choose: Choice
) -> Callable[..., None]:
    """`init` of what is called `name`, with what is chosen of the search's arguments among the script's."""
    takes = inspect.signature(init)

    @functools.wraps(init)
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            given = takes.bind(self, *args, **kwargs)
        except TypeError:  # the script's own mistake: it should be reported by its name
            init(self, *args, **kwargs)
            return
        known = {key: value for key, value in overrides.of(name).items() if key in takes.parameters}
        chosen = choose(known, given.arguments)
        given.arguments.update(chosen)
        init(*given.args, **given.kwargs)
        overrides.tell(name, known.keys() & chosen.keys())

    return made


def _loader(data: Any, known: Arguments, given: Arguments) -> Arguments:
    """Of a loader that is not to train with only how it loads; without workers nothing that needs some."""
    is_of_training = _is_of_training(given, data)
    taken = {name: value for name, value in known.items() if is_of_training or name not in _OF_TRAINING}
    if taken.get("num_workers", given.get("num_workers", 0)):
        return taken
    return {**taken, **{name: none for name, none in _OF_WORKERS.items() if name in {*given, *taken}}}


def _is_of_training(given: Arguments, data: Any) -> bool:
    """Whether a loader draws its batches at random, and makes them itself: one to train with."""
    if given.get("batch_sampler") is not None or given.get("batch_size", 1) is None:
        return False
    sampler = given.get("sampler")
    if sampler is None or isinstance(sampler, data.SequentialSampler):
        return bool(given.get("shuffle"))
    return bool(getattr(sampler, "shuffle", True))  # that of several processes says whether it does


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
