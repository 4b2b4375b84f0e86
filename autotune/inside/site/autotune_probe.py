"""Writes down what a probed script is and does, as lines of JSON with one key each."""

from __future__ import annotations

import functools
import json
import os
import sys
import threading
import time
from contextlib import suppress
from typing import Any, Callable, Mapping  # noqa: UP035 - for Python 3.8

import autotune_options
import autotune_scores
import autotune_wire
from autotune_batches import Steps
from autotune_imports import After, replace
from autotune_options import SCALARS, flat
from autotune_scores import numbers

_FIRST = 6  # steps whose loss is read, and whose modules are looked at
_MOST_FILES = 200
_clock_s = time.monotonic  # bound here, because a script may patch time.monotonic


def arm(after: After) -> None:
    notes = _Notes(os.environ[autotune_wire.PROBE])
    autotune_options.note_parsers(notes.write)
    sys.addaudithook(_file_listener(notes))
    steps = _Probe(notes)
    after.do("torch", steps.attach)
    for package in ("lightning.pytorch", "pytorch_lightning"):
        after.do(f"{package}.trainer.trainer", functools.partial(_note_trainer, notes, "lightning"))
    after.do("transformers.trainer", functools.partial(_note_trainer, notes, "transformers"))
    after.do("hydra.core.hydra_config", functools.partial(autotune_options.note_hydra, notes.write))
    after.do("omegaconf.omegaconf", functools.partial(autotune_options.note_omegaconf, notes.write))
    after.do("click.core", functools.partial(autotune_options.note_click, notes.write))
    after.do("fire.core", functools.partial(autotune_options.note_fire, notes.write))
    autotune_scores.listen(
        after, lambda kind, place, values: notes.write({"logged": [kind, place, numbers(values)]})
    )


class _Notes:
    """Appends lines to the file of the probe, in the first process of the script only."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115, PTH123 - open as long as the script runs
        self._pid = os.getpid()
        self._lock = threading.RLock()

    def write(self, note: Mapping[str, Any]) -> None:
        if os.getpid() != self._pid or int(os.environ.get("RANK") or 0):
            return
        note = {**note, "pid": self._pid, "above": os.getppid()}
        with self._lock:
            self._file.write(json.dumps(note, default=str) + "\n")
            self._file.flush()


def _note_trainer(notes: _Notes, framework: str, module: Any) -> None:
    """Writes down that a framework's trainer is made, with the scalars among its arguments."""

    def make(init: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        arguments = kwargs.get("args") or (args[1] if len(args) > 1 else None)
        values = vars(arguments) if framework == "transformers" and arguments is not None else kwargs
        known = {name: value for name, value in values.items() if isinstance(value, SCALARS)}
        notes.write({"trainer": {"framework": framework, "arguments": known}})
        init(self, *args, **kwargs)
        _listen_to(self, module, notes, framework)

    replace(module.Trainer, "__init__", make)


def _listen_to(trainer: Any, module: Any, notes: _Notes, framework: str) -> None:
    if framework == "transformers":

        class OfTransformers(module.TrainerCallback):  # type: ignore[misc]
            def on_evaluate(self, *_: Any, metrics: Mapping[str, Any] | None = None, **__: Any) -> None:
                notes.write({"logged": ["reported", "", numbers(metrics or {})]})

        trainer.add_callback(OfTransformers())
        return
    base = sys.modules[module.__name__.partition(".trainer")[0]].Callback

    class OfLightning(base):  # type: ignore[misc, valid-type]
        def on_validation_end(self, trainer: Any, *_: Any) -> None:
            if not trainer.sanity_checking:
                notes.write({"logged": ["reported", "", numbers(trainer.callback_metrics)]})

    trainer.callbacks.append(OfLightning())


def _file_listener(notes: _Notes) -> Callable[[str, Any], None]:
    """Returns an audit hook that writes down the files that the script opens for writing, each once."""
    seen: set[str] = set()

    def listen(event: str, args: Any) -> None:
        if event != "open":
            return
        path, mode, flags = args
        is_written = bool(set(mode or "") & set("wax+")) or bool((flags or 0) & (os.O_WRONLY | os.O_RDWR))
        if not is_written or not isinstance(path, str) or path in seen or len(seen) >= _MOST_FILES:
            return
        seen.add(path)
        notes.write({"wrote": os.path.abspath(path)})  # noqa: PTH100 - a script may have no pathlib yet

    return listen


class _Probe:
    """Writes down the steps of a training: learning rates, batches, passes, first losses, number format."""

    def __init__(self, notes: _Notes) -> None:
        self._notes, self._steps = notes, Steps()
        self._count = self._passes = 0
        self._shape: list[int] | None = None
        self._dtype = ""
        self._loss: Any = None
        self._loader: Any = None
        self._is_in_backward = False
        self._torch: Any = None
        self._handle: Any = None

    def attach(self, torch: Any) -> None:
        self._torch = torch
        optimizers = sys.modules["torch.optim.optimizer"]
        optimizers.register_optimizer_step_post_hook(lambda optimizer, *_: self._stepped(optimizer))
        iterator = torch.utils.data.dataloader._BaseDataLoaderIter
        replace(optimizers.Optimizer, "__init__", self._steps.make_optimizer)
        replace(torch.autograd, "backward", self._backward)
        replace(torch, "compile", self._compile)
        replace(iterator, "__init__", _begin_batches)
        replace(iterator, "__next__", self._next_batch)
        iterator.next = iterator.__next__
        self._handle = torch.nn.modules.module.register_module_forward_pre_hook(self._enters)

    def _compile(self, compile_: Any, *args: Any, **kwargs: Any) -> Any:
        self._notes.write({"compiled": True})
        return compile_(*args, **kwargs)

    def _next_batch(self, give: Any, iterator: Any) -> Any:
        if self._torch.is_grad_enabled():
            self._loader = getattr(iterator, "_autotune_probed", None)
        return give(iterator)

    def _enters(self, module: Any, args: Any) -> None:
        """Notes the batch of the first module that is called in a step, and the number format."""
        torch = self._torch
        if not torch.is_grad_enabled() or not module.training:
            return
        dtype: Any = None
        if torch.is_autocast_enabled():  # perhaps only in an inner module, as with Accelerate
            dtype = torch.get_autocast_gpu_dtype()
        elif torch.is_autocast_cpu_enabled():
            dtype = torch.get_autocast_cpu_dtype()
        tensor = next((one for one in args if isinstance(one, torch.Tensor) and one.dim()), None)
        if self._shape is None and tensor is not None:
            self._shape = list(tensor.shape)
            if not self._count:
                self._notes.write({"device": tensor.device.type})
            if dtype is None and not self._dtype:
                dtype = next((p.dtype for p in module.parameters() if p.is_floating_point()), tensor.dtype)
        if dtype is not None:
            self._dtype = str(dtype).rpartition(".")[2]

    def _backward(self, backward: Any, *args: Any, **kwargs: Any) -> None:
        if self._is_in_backward:
            backward(*args, **kwargs)
            return
        self._is_in_backward = True
        self._passes += 1
        loss: Any = args[0] if args else kwargs.get("tensors")
        loss = loss[0] if isinstance(loss, (list, tuple)) and loss else loss
        if self._count < _FIRST and self._loss is None and getattr(loss, "numel", lambda: 0)() == 1:
            self._loss = float(loss.detach())
        try:
            backward(*args, **kwargs)
        finally:
            self._is_in_backward = False
        if self._steps.passed():
            self._end_step([])

    def _stepped(self, optimizer: Any) -> None:
        if self._steps.stepped(optimizer):
            self._end_step([float(group["lr"]) for group in optimizer.param_groups if "lr" in group])

    def _end_step(self, rates: list[float]) -> None:
        self._count += 1
        step: dict[str, Any] = {"at_s": _clock_s(), "rates": rates, "passes": self._passes}
        step.update(shape=self._shape, dtype=self._dtype, loss=self._loss)
        if self._loader is not None:
            step["loader"] = _settings_of(self._loader)
        self._notes.write({"step": step})
        if self._count == 1:
            self._note_names()
        if self._count == _FIRST and self._handle is not None:
            self._handle.remove()
        self._passes, self._shape, self._loss, self._loader = 0, None, None, None

    def _note_names(self) -> None:
        names = vars(sys.modules["__main__"])
        own = {name: one for name, one in names.items() if isinstance(one, SCALARS) and name[0] != "_"}
        self._notes.write({"names": own})
        for value in list(names.values()):
            if hasattr(value, "merge_from_args"):
                self._notes.write({"config": {"form": "--{name}={value}", "values": dict(flat(value))}})
            elif hasattr(value, "merge_from_list"):
                self._notes.write({"config": {"form": "{name} {value}", "values": dict(flat(value))}})


def _settings_of(loader: Any) -> dict[str, Any]:
    names = ("batch_size", "num_workers", "prefetch_factor")
    described: dict[str, Any] = {name: getattr(loader, name, None) for name in names}
    described.update(batches=None, items=None)
    sampler = getattr(loader, "batch_sampler", None)
    described["batch_size"] = described["batch_size"] or getattr(sampler, "batch_size", None)
    with suppress(TypeError):
        described["batches"], described["items"] = len(loader), len(loader.dataset)
    return described


def _begin_batches(begin: Any, iterator: Any, loader: Any) -> None:
    iterator._autotune_probed = loader
    begin(iterator, loader)
