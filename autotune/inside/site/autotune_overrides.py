"""Replaces arguments of a script's loaders and optimizers with those of the search, and changes models."""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import os
from typing import Any, Callable, Mapping  # noqa: UP035 - for Python 3.8

import autotune_wire
from autotune_imports import attempt, replace

# Arguments that only a loader with workers may have, and their defaults.
_OF_WORKERS = {
    "persistent_workers": False,
    "prefetch_factor": None,
    "timeout": 0,
    "multiprocessing_context": None,
}
# Arguments that shape batches: an evaluation keeps its own, to stay comparable.
_OF_TRAINING = ("batch_size", "drop_last", "shuffle")
_MARK = "_autotune_device"  # attribute of a changed model: the kind of its device
MATMUL = {"fp32": "highest", "tf32": "high"}  # torch's names for the precision of matrix products
Arguments = Mapping[str, Any]


class Overrides:
    """The search's arguments, from the environment, by the object that takes them: `{"loader": {...}}`."""

    def __init__(self, wire: autotune_wire.Wire) -> None:
        self._wire = wire
        self._values: Mapping[str, Mapping[str, Any]] = json.loads(
            os.environ.get(autotune_wire.OVERRIDES) or "{}"
        )
        self._taken: set[str] = set()
        self.ratio: float | None = None  # of the first optimizer's learning rate to the script's

    def get(self, name: str) -> Mapping[str, Any]:
        return self._values.get(name) or {}

    def tell(self, name: str, taken: Any) -> None:
        """Reports that an object called `name` has taken these arguments."""
        new = {f"{name}.{key}" for key in taken} - self._taken
        if new:
            self._taken |= new
            self._wire.tell({"taken": sorted(new)})


def attach(torch: Any, overrides: Overrides) -> None:
    if overrides.get("loader"):
        data = torch.utils.data
        replace_init(data.DataLoader, "loader", overrides, functools.partial(_loader, data))
    if overrides.get("optimizer"):
        replace(torch.optim.Optimizer, "__init__", functools.partial(_make_optimizer, overrides))


def replace_init(
    made: Any, name: str, overrides: Overrides, choose: Callable[[Arguments, Arguments], Arguments]
) -> None:
    """Makes the class `made` take what `choose` returns, given the search's arguments and the script's."""
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
    if not given.get("num_workers") and _repeats(given.get("dataset"), data):
        taken = {name: value for name, value in taken.items() if not (name == "num_workers" and value)}
    if taken.get("num_workers", given.get("num_workers", 0)):
        return taken
    return {**taken, **{name: none for name, none in _OF_WORKERS.items() if name in {*given, *taken}}}


def _repeats(dataset: Any, data: Any) -> bool:
    """Returns True if each worker might yield all items; those of the package datasets share them out."""
    is_iterated = isinstance(dataset, data.IterableDataset)
    return is_iterated and type(dataset).__module__.partition(".")[0] != "datasets"


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
    has_own = isinstance(group, dict) and group.get("lr") is not None
    return {**group, "lr": group["lr"] * ratio} if has_own else group


def attach_model(torch: Any, overrides: Overrides) -> None:
    """Applies the arguments for `model`, if there are any, to every model that the script trains."""
    values = overrides.get("model")
    if not values:
        return
    precision = values.get("precision")
    if precision in MATMUL:
        torch.set_float32_matmul_precision(MATMUL[precision])
        torch.backends.cudnn.allow_tf32 = precision == "tf32"
    _Outermost(torch, _ModelChange(torch, overrides).apply)


class _Outermost:
    """Calls `found` with each trained model before its first call, until the first optimizer step."""

    def __init__(self, torch: Any, found: Callable[[Any], None]) -> None:
        self._torch, self._found, self._depth, self._has_ended = torch, found, 0, False
        self._seen: set[int] = set()
        self._call = torch.nn.Module.__call__
        torch.nn.Module.__call__ = self._around(self._call)
        optimizers = importlib.import_module("torch.optim.optimizer")
        optimizers.register_optimizer_step_post_hook(self._stepped)  # not removed: torch iterates over them

    def _around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def called(module: Any, *args: Any, **kwargs: Any) -> Any:
            is_new = not self._depth and id(module) not in self._seen
            if is_new and module.training and self._torch.is_grad_enabled():
                self._seen.add(id(module))
                if any(one.requires_grad for one in module.parameters()):  # else it is a loss
                    attempt(self._found, module, "the model is left unchanged")
            self._depth += 1
            try:
                return call(module, *args, **kwargs)
            finally:
                self._depth -= 1

        return called

    def _stepped(self, *_: Any) -> None:
        if not self._has_ended:
            self._torch.nn.Module.__call__ = self._call
            self._has_ended = True


class _ModelChange:
    """Changes models: autocast to bf16 as in Accelerate, channels-last memory format, compilation."""

    def __init__(self, torch: Any, overrides: Overrides) -> None:
        self._torch, self._overrides, self._values = torch, overrides, overrides.get("model")
        self._dtype = torch.bfloat16 if self._values.get("precision") == "bf16" else None
        self._is_channels_last = bool(self._values.get("channels_last"))
        self._kinds: set[type] = set()

    def apply(self, model: Any) -> None:
        """Changes a model in place; its parameters stay the objects that its optimizer has."""
        model = getattr(model, "_orig_mod", model)  # one that the script compiles
        if self._is_channels_last:
            model.to(memory_format=self._torch.channels_last)
        if self._dtype is not None or self._is_channels_last:
            # With only a mark, and `forward` in its class, it can be copied and saved as before.
            setattr(model, _MARK, next(model.parameters()).device.type)
            kind = type(model)
            if kind not in self._kinds:
                self._kinds.add(kind)
                kind.forward = self._around(kind.forward)
        if self._values.get("compile") not in (None, "off", False):
            model.compile()
        self._overrides.tell("model", self._values)

    def _around(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(forward)
        def changed(model: Any, *args: Any, **kwargs: Any) -> Any:
            device = getattr(model, _MARK, None)
            if device is None:
                return forward(model, *args, **kwargs)
            if self._is_channels_last:
                args = tuple(self._ordered(one) for one in args)
            if self._dtype is None:
                return forward(model, *args, **kwargs)
            with self._torch.autocast(device, self._dtype):
                result = forward(model, *args, **kwargs)
            return self._widened(result)

        return changed

    def _ordered(self, value: Any) -> Any:
        is_image = isinstance(value, self._torch.Tensor) and value.dim() == 4
        return value.contiguous(memory_format=self._torch.channels_last) if is_image else value

    def _widened(self, value: Any) -> Any:
        """Converts tensors from autocast's format to float32, also in tuples, lists and mappings."""
        if isinstance(value, self._torch.Tensor):
            return value.float() if value.dtype == self._dtype else value
        if isinstance(value, dict):  # also a model's output with attributes
            for name, one in value.items():
                value[name] = self._widened(one)
            return value
        if type(value) in (tuple, list):
            return type(value)(self._widened(one) for one in value)
        return value
