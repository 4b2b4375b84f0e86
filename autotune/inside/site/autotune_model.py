"""Changes the precision and memory format of a script's models, and compiles them."""

from __future__ import annotations

import functools
import importlib
from typing import Any, Callable  # noqa: UP035 - for Python 3.8

from autotune_imports import attempt
from autotune_overrides import Overrides

_FORMATS = {"bf16": "bfloat16"}
_MARK = "_autotune_device"  # attribute of a changed model: the kind of its device
_MATMUL = {"fp32": "highest", "tf32": "high"}


def attach(torch: Any, overrides: Overrides) -> None:
    """Applies the arguments for `model`, if there are any, to every model that the script trains."""
    values = overrides.get("model")
    if not values:
        return
    precision = values.get("precision")
    if precision in _MATMUL:
        torch.set_float32_matmul_precision(_MATMUL[precision])
        torch.backends.cudnn.allow_tf32 = precision == "tf32"
    change = _ModelChange(
        torch,
        getattr(torch, _FORMATS[precision]) if precision in _FORMATS else None,
        is_channels_last=bool(values.get("channels_last")),
        is_compiled=values.get("compile") not in (None, "off", False),
    )

    def apply(model: Any) -> None:
        change.apply(model)
        overrides.tell("model", values)

    _Outermost(torch, apply)


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
            if not self._depth:
                self._look_at(module)
            self._depth += 1
            try:
                return call(module, *args, **kwargs)
            finally:
                self._depth -= 1

        return called

    def _look_at(self, module: Any) -> None:
        is_trained = self._torch.is_grad_enabled() and module.training
        if is_trained and id(module) not in self._seen:
            self._seen.add(id(module))
            if any(one.requires_grad for one in module.parameters()):  # else it is a loss
                attempt(self._found, module, "the model is left unchanged")

    def _stepped(self, *_: Any) -> None:
        """Ends the search for models at the first step."""
        if not self._has_ended:
            self._torch.nn.Module.__call__ = self._call
            self._has_ended = True


class _ModelChange:
    """Changes models: autocast to `dtype` as in Accelerate, channels-last memory format, compilation."""

    def __init__(self, torch: Any, dtype: Any, *, is_channels_last: bool, is_compiled: bool) -> None:
        self._torch, self._dtype = torch, dtype
        self._is_channels_last, self._is_compiled = is_channels_last, is_compiled
        self._kinds: set[type] = set()

    def apply(self, model: Any) -> None:
        """Changes a model in place; its parameters stay the objects that its optimizer has.

        The class gets another `forward`, and the model only a mark, so it can be copied and saved as before.
        """
        model = getattr(model, "_orig_mod", model)  # one that the script compiles
        if self._is_channels_last:
            model.to(memory_format=self._torch.channels_last)
        if self._dtype is not None or self._is_channels_last:
            setattr(model, _MARK, next(model.parameters()).device.type)
            kind = type(model)
            if kind not in self._kinds:
                self._kinds.add(kind)
                kind.forward = self._around(kind.forward)
        if self._is_compiled:
            model.compile()

    def _around(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps a `forward`, to convert inputs to the memory format, and outputs to float32."""

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
